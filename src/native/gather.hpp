// Fill a tensor from another one: out[i, j, ..] = source[x[i], y[j], ..] * f[i] * g[j] * ..
//
// The output is written once, from front to back, by as many threads as there are. It is cut into rows: the
// last axes are the inside of a row, the others count rows. What a row does inside is the same for all of
// them, so it is worked out once, as a short list of steps (copy a run, gather, fill with zeros) with one
// offset and one factor for each element; a row then adds only where it begins in the source and its own
// factor. Where rows get long they are cut into tiles, whose tables stay in the nearest cache.
//
// Axes of the source may lie in memory in another order than those of the output. A row then takes one number
// here and one there, and its neighbours in the source belong to other rows: tiles are short, and the rows of
// a tile are made in the order of the source, so that a line of memory that was read serves them all.
//
// Elements that lie near each other are moved together, by whatever takes fewest moves: sieves (64 bytes of which
// some are kept, in their order), windows (16 bytes in any order), pieces (neighbours), or one by one.
//
// The result does not depend on the number of threads.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "cut.hpp"
#include "floats.hpp"
#include "memory.hpp"

namespace modelkeeper {

// What a row does inside one tile.
struct Program {
    enum Kind { ZERO, RUN, GATHER };
    struct Step {
        Kind kind;
        bool holes, scaled;  // is any element a hole? has any a factor in the table?
        int64_t begin, end;
        int64_t source;                   // of a run
        size_t first_piece, last_piece;  // of a gather
        size_t first_window = 0, last_window = 0;  // likewise, where moving windows takes fewer moves; else none
        size_t first_sieve = 0, last_sieve = 0;    // and where sieves take fewer still
    };
    // Neighbours that a gather moves at once. A move is always PIECE bytes wide, which is quicker than to
    // look how many are meant: what is too much is overwritten by the next piece.
    // Two of them to the width of one address, so that the table of a tile stays in the nearest cache too.
    struct Piece {
        uint32_t source;  // in bytes, or NOWHERE
        uint32_t bytes;
    };
    static constexpr uint32_t NOWHERE = UINT32_MAX;
    static constexpr int64_t PIECE = 16;
    static constexpr int64_t LONG = 24, LONG_BYTES = 128;  // elements, and bytes: then a stretch is a step of its own

    int64_t first = 0, length = 0;  // in the output, from where the row begins
    int64_t reach = 0;              // how far behind the row's begin in the source pieces read, in bytes
    std::vector<int64_t> offset;
    std::vector<double> factor;
    std::vector<Step> steps;
    std::vector<Piece> pieces;
    std::vector<Window> windows;
    std::vector<Sieve> sieves;

    // All that making programs will need, so that it can be done where nothing may fail.
    Program(const Cut &cut, const std::vector<Axis> &axes, int64_t itemsize) : itemsize_(itemsize) {
        if (cut.split + 1 == axes.size() && axes.back().run()) {
            steps.reserve(1);
        } else {
            offset.resize(size_t(cut.block * cut.inner));
            factor.resize(offset.size());
            steps.reserve(offset.size());
            pieces.reserve(offset.size());
            windows.reserve(moves_windows() && itemsize <= 4 ? offset.size() : 0);
            sieves.reserve(sifts() && (itemsize == 2 || itemsize == 4) ? offset.size() : 0);
        }
    }

    void make(const Cut &cut, const std::vector<Axis> &axes, int64_t tile) {
        const Axis &axis = axes[cut.split];
        const int64_t begin = tile * cut.block, end = std::min(begin + cut.block, axis.size);
        first = begin * cut.inner;
        length = (end - begin) * cut.inner;
        reach = 0;
        steps.clear();
        pieces.clear();
        windows.clear();
        sieves.clear();
        if (offset.empty()) {
            steps.push_back({RUN, false, false, 0, length, begin, 0, 0});
            return;
        }
        for (int64_t i = begin; i < end; ++i) {
            offset[size_t(i - begin)] = axis.at(i);
            factor[size_t(i - begin)] = axis.times(i);
        }
        int64_t count = end - begin;
        for (size_t k = cut.split + 1; k < axes.size(); count *= axes[k++].size) spread(axes[k], count);
        for (int64_t j = 0; j < length;) j = add_stretch(j);
        for (Step &step : steps)
            if (step.kind == GATHER && !step.holes && !(sieves.capacity() && add_sieves(step)) && windows.capacity())
                add_windows(step);
    }

  private:
    // Each of `count` entries becomes one for each unit of `axis`; from the back, so that none is lost.
    void spread(const Axis &axis, int64_t count) {
        for (int64_t u = count; u-- > 0;) {
            const int64_t from = offset[size_t(u)];
            const double times = factor[size_t(u)];
            for (int64_t i = axis.size; i-- > 0;) {
                const size_t entry = size_t(u * axis.size + i);
                offset[entry] = from == HOLE || axis.at(i) == HOLE ? HOLE : from + axis.at(i);
                factor[entry] = times * axis.times(i);
            }
        }
    }

    // The stretch of neighbours that begins at `begin`, as a step or as part of one. Where does it end?
    int64_t add_stretch(int64_t begin) {
        const bool hole = offset[size_t(begin)] == HOLE;
        int64_t end = begin + 1;
        while (end < length && offset[size_t(end)] == (hole ? HOLE : offset[size_t(end - 1)] + 1)) ++end;
        bool scaled = false;
        for (int64_t j = begin; j < end && !hole; ++j) scaled |= factor[size_t(j)] != 1.0;
        if (end - begin >= LONG && (end - begin) * itemsize_ >= LONG_BYTES) {
            steps.push_back({hole ? ZERO : RUN, hole, scaled, begin, end, offset[size_t(begin)], 0, 0});
            return end;
        }
        if (steps.empty() || steps.back().kind != GATHER)
            steps.push_back({GATHER, false, false, begin, end, 0, pieces.size(), pieces.size()});
        for (int64_t j = begin; j < end;) {
            const int64_t next = std::min(end, j + std::max<int64_t>(1, PIECE / itemsize_));
            const int64_t from = hole ? 0 : offset[size_t(j)] * itemsize_;
            pieces.push_back({hole ? NOWHERE : uint32_t(from), uint32_t((next - j) * itemsize_)});
            if (!hole) reach = std::max(reach, from + PIECE);
            j = next;
        }
        Step &step = steps.back();
        step.end = end;
        step.holes |= hole;
        step.scaled |= scaled;
        step.last_piece = pieces.size();
        return end;
    }

    // Stretches in their order with gaps between them: units of which some are left out.
    bool add_sieves(Step &step) {
        const int64_t width = Sieve::WIDTH / itemsize_;
        const size_t first = sieves.size(), most = (step.last_piece - step.first_piece) / 2;
        int64_t behind = 0;
        for (int64_t j = step.begin; j < step.end;) {
            if (sieves.size() - first >= most) return sieves.resize(first), false;
            const int64_t low = offset[size_t(j)];
            Sieve sieve{uint32_t(low * itemsize_), 0};
            for (int64_t at = 0, before = -1; j < step.end; ++j, before = at) {
                at = offset[size_t(j)] - low;
                if (at <= before || at >= width) break;
                sieve.kept |= 1u << at;
            }
            sieves.push_back(sieve);
            behind = std::max(behind, low * itemsize_ + Sieve::WIDTH);
        }
        step.first_sieve = first, step.last_sieve = sieves.size();
        reach = std::max(reach, behind);
        return true;
    }

    // Stretches with small gaps between them, and elements in any order, as long as they lie near each other.
    void add_windows(Step &step) {
        const int64_t width = Window::WIDTH / itemsize_;
        const size_t first = windows.size(), most = (step.last_piece - step.first_piece) * 3 / 4;
        int64_t behind = 0;
        for (int64_t j = step.begin; j < step.end;) {
            if (windows.size() - first >= most) return windows.resize(first);  // pieces are as good
            const int64_t low = offset[size_t(j)];
            Window window{uint32_t(low * itemsize_), 0, {}};
            for (; j < step.end && window.bytes < Window::WIDTH; ++j) {
                const int64_t at = offset[size_t(j)] - low;
                if (at < 0 || at >= width) break;
                for (int64_t b = 0; b < itemsize_; ++b) window.from[window.bytes++] = uint8_t(at * itemsize_ + b);
            }
            windows.push_back(window);
            behind = std::max(behind, low * itemsize_ + Window::WIDTH);
        }
        step.first_window = first, step.last_window = windows.size();
        reach = std::max(reach, behind);
    }

    int64_t itemsize_;
};

template <class Number> struct Task {
    const std::vector<Axis> &axes;
    const Cut &cut;
    const typename Number::Stored *source, *source_end;
    typename Number::Stored *out;
    bool past_caches;
};

// One thread's way through its rows. The loops at the end are what all of this is for.
template <class Number> class Worker {
  public:
    using Stored = typename Number::Stored;
    using Factor = typename Number::Factor;
    static constexpr bool scales = Number::scales;
    static constexpr int64_t AHEAD = 1 << 14;  // bytes of the source that are asked for before they are needed
    static constexpr int64_t ROOM = 8192;  // bytes that are made before they are put in their place

    explicit Worker(const Task<Number> &task) : task_(task), program_(task.cut, task.axes, sizeof(Stored)) {
        if (program_.offset.empty()) return;
        if (scales) scale_.resize(program_.offset.size());
        room_ = std::max<int64_t>(int64_t(program_.offset.size()), ROOM / int64_t(sizeof(Stored)));
        buffer_.resize(size_t(room_) + Sieve::WIDTH);
    }

    // Rows [begin, end) of a tile.
    void work(int64_t tile, int64_t begin, int64_t end) noexcept {
        if (tile != tile_) program_.make(task_.cut, task_.axes, tile_ = tile), ready_ = false;
        const int64_t row_length = task_.axes[task_.cut.split].size * task_.cut.inner;
        const bool direct = buffer_.empty();
        // Rows that follow each other in the output are put there together: where one ends within a line of
        // memory and the next begins in it, that line would have to be read first, and all else would wait.
        const bool apart = direct || task_.cut.tiles > 1 || task_.cut.moved;
        const int64_t at_once = apart ? 1 : std::max<int64_t>(1, room_ / row_length);
        Row row(task_.axes, task_.cut, begin), ahead = row;
        const int64_t lead = fetched_ahead();
        for (int64_t r = begin; r < std::min(end, begin + lead); ++r, ahead.next()) fetch(ahead);
        for (int64_t r = begin; r < end;) {
            Stored *to = task_.out + (task_.cut.moved ? row.number() : r) * row_length + program_.first;
            Stored *const made = direct ? to : buffer_.data();
            Stored *at = made;
            for (const int64_t stop = std::min(end, r + at_once); r < stop; ++r, row.next(), at += program_.length) {
                if (lead && r + lead < end) fetch(ahead), ahead.next();
                fill(row, at);
            }
            if (!direct) put(to, made, size_t(at - made) * sizeof(Stored), task_.past_caches);
        }
        settle();
    }

  private:
    // So many rows before its turn the source of a row is asked for: where rows are left out, machines do not
    // guess which comes next, and wait for each.
    int64_t fetched_ahead() const {
        const bool skips = !task_.cut.visit.empty() && !task_.axes[task_.cut.visit.back()].offset.empty();
        if (!skips || task_.cut.moved || buffer_.empty() || program_.reach > AHEAD) return 0;
        return AHEAD / std::max<int64_t>(64, program_.reach);
    }

    void fetch(const Row &row) const {
        int64_t from;
        double times;
        row.read(from, times);
        if (from == HOLE) return;
        const char *line = reinterpret_cast<const char *>(task_.source + from);
        const char *end = std::min(line + program_.reach, reinterpret_cast<const char *>(task_.source_end));
        for (; line < end; line += 64) prefetch(line);
    }

    void fill(const Row &row, Stored *to) {
        int64_t from;
        double times;
        row.read(from, times);
        if (from == HOLE) return zero(to, program_.length);
        set_scale(times);
        for (const Program::Step &step : program_.steps) perform(step, times, task_.source + from, to + step.begin);
    }

    // What each element of the row is multiplied by. Mostly that is the same for all rows.
    void set_scale(double times) {
        if (ready_ && times == times_) return;
        ready_ = true, times_ = times;
        if constexpr (scales)
            for (size_t j = 0; j < scale_.size(); ++j)
                scale_[j] = program_.offset[j] == HOLE ? Factor(0) : factor_of<Number>(times * program_.factor[j]);
    }

    void perform(const Program::Step &step, double times, const Stored *source, Stored *to) const {
        const int64_t n = step.end - step.begin;
        const bool scaled = scales && (step.scaled || times != 1.0);
        [[maybe_unused]] const Factor *scale = scale_.data() + step.begin;
        if (step.kind == Program::ZERO) {
            zero(to, n);
        } else if (step.kind == Program::GATHER) {
            const bool few = int64_t(step.last_piece - step.first_piece) * 3 <= n * 2;
            const bool near = program_.reach < int64_t(Program::NOWHERE);
            const bool inside = reinterpret_cast<const char *>(task_.source_end) -
                                    reinterpret_cast<const char *>(source) >= program_.reach;
            if (near && inside && step.last_sieve > step.first_sieve)
                sift<sizeof(Stored)>(program_.sieves.data() + step.first_sieve, program_.sieves.data() + step.last_sieve,
                                     reinterpret_cast<const char *>(source), reinterpret_cast<char *>(to));
            else if (near && inside && step.last_window > step.first_window)
                move_windows(program_.windows.data() + step.first_window, program_.windows.data() + step.last_window,
                             reinterpret_cast<const char *>(source), reinterpret_cast<char *>(to));
            else if (few && near)
                move_pieces(step, source, to);
            else
                move_elements(step, source, to, n);
            if constexpr (scales)
                if (scaled) multiply<Number>(scale, to, n);
        } else if (!scaled) {
            if (task_.past_caches && buffer_.empty())
                put(to, source + step.source, size_t(n) * sizeof(Stored), true);
            else
                std::memcpy(static_cast<void *>(to), source + step.source, size_t(n) * sizeof(Stored));
        } else if constexpr (scales) {
            if (scale_.empty())
                multiply<Number>(source + step.source, factor_of<Number>(times), to, n);
            else
                multiply<Number>(source + step.source, scale, to, n);
        }
    }

    static void zero(Stored *to, int64_t n) { std::memset(static_cast<void *>(to), 0, size_t(n) * sizeof(Stored)); }

    void move_pieces(const Program::Step &step, const Stored *source, Stored *to) const {
        static constexpr char zeros[Program::PIECE] = {};
        const char *base = reinterpret_cast<const char *>(source);
        char *out = reinterpret_cast<char *>(to);
        const Program::Piece *piece = program_.pieces.data() + step.first_piece;
        const Program::Piece *last = program_.pieces.data() + step.last_piece;
        const bool inside = reinterpret_cast<const char *>(task_.source_end) - base >= program_.reach;
        if (inside && !step.holes)  // what nearly all steps are: nothing to ask, and two pieces at a time
            for (; piece + 2 <= last; piece += 2) {
                const Program::Piece one = piece[0], two = piece[1];
                std::memcpy(out, base + one.source, Program::PIECE);
                std::memcpy(out + one.bytes, base + two.source, Program::PIECE);
                out += one.bytes + two.bytes;
            }
        for (; piece < last && inside; out += piece++->bytes)
            std::memcpy(out, piece->source == Program::NOWHERE ? zeros : base + piece->source, Program::PIECE);
        for (; piece < last; out += piece++->bytes)
            std::memcpy(out, piece->source == Program::NOWHERE ? zeros : base + piece->source, size_t(piece->bytes));
    }

    void move_elements(const Program::Step &step, const Stored *__restrict source, Stored *__restrict to,
                       int64_t n) const {
        const int64_t *__restrict offset = program_.offset.data() + step.begin;
        int64_t j = 0;
        for (; j + 4 <= n && !step.holes; j += 4) {
            const Stored a = source[offset[j]], b = source[offset[j + 1]];
            const Stored c = source[offset[j + 2]], d = source[offset[j + 3]];
            to[j] = a, to[j + 1] = b, to[j + 2] = c, to[j + 3] = d;
        }
        for (; j < n; ++j) to[j] = offset[j] == HOLE ? Stored{} : source[offset[j]];
    }

    const Task<Number> &task_;
    Program program_;
    int64_t tile_ = -1;           // that the program is for
    int64_t room_ = 0;            // for so many elements
    std::vector<Stored> buffer_;  // where rows with a table are made, with room for the last piece's excess
    std::vector<Factor> scale_;   // of the row before
    double times_ = 1.0;
    bool ready_ = false;
};

// The axes describe `out`, their offsets are inside `source`, which has `available` elements: the caller has
// seen to that. No size of `out` is zero.
template <class Number>
void gather(std::vector<Axis> given, const void *source, size_t available, void *out, size_t threads) {
    using Stored = typename Number::Stored;
    constexpr int64_t chunk = (1 << 18) / sizeof(Stored);  // what a thread takes at a time
    constexpr int64_t worth = (1 << 19) / sizeof(Stored);  // what one more thread must have to do

    const std::vector<Axis> axes = simplified(std::move(given));
    const Cut cut(axes);
    const int64_t size = axes[cut.split].size * cut.inner * cut.rows;
    const Stored *from = static_cast<const Stored *>(source);
    const Task<Number> task{axes, cut, from, from + available, static_cast<Stored *>(out),
                            size * int64_t(sizeof(Stored)) > LARGE};
    const int64_t rows_at_once = std::max<int64_t>(1, chunk / (cut.block * cut.inner));
    const int64_t chunks_of_tile = (cut.rows + rows_at_once - 1) / rows_at_once;
    threads = size_t(std::clamp<int64_t>(size / worth, 1, int64_t(threads)));
    std::vector<Worker<Number>> workers;
    workers.reserve(threads);
    for (size_t t = 0; t < threads; ++t) workers.emplace_back(task);

    std::atomic<int64_t> next{0};
    together(threads, [&](size_t thread) noexcept {
        for (int64_t c = next++; c < chunks_of_tile * cut.tiles; c = next++) {
            const int64_t begin = c % chunks_of_tile * rows_at_once;
            workers[thread].work(c / chunks_of_tile, begin, std::min(begin + rows_at_once, cut.rows));
        }
    });
}

}  // namespace modelkeeper
