// Fill a tensor from another one: out[i, j, ..] = source[x[i], y[j], ..] * f[i] * g[j] * ..
//
// The output is written once, from front to back, by as many threads as there are. It is cut into rows: the
// last axes are the inside of a row, the others count rows. What a row does inside is the same for all of
// them, so it is worked out once, as a short list of steps (copy a run, gather, fill with zeros) with one
// offset and one factor for each element; a row then adds only where it begins in the source and its own
// factor. Where rows get long they are cut into tiles, whose tables stay in the nearest cache.
//
// The result does not depend on the number of threads.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>

#include "floats.hpp"

namespace modelkeeper {

constexpr int64_t HOLE = -1;  // the offset of an element that has no source and is zero

// One axis of the output; offsets count elements of the source.
struct Axis {
    int64_t size;
    int64_t stride;               // how far apart neighbours are in the source
    std::vector<int64_t> offset;  // empty: identity, element i is at i * stride
    std::vector<double> factor;   // empty: 1

    bool plain() const { return offset.empty() && factor.empty(); }
    bool run() const { return plain() && stride == 1; }
    int64_t at(int64_t i) const { return offset.empty() ? i * stride : offset[size_t(i)]; }
    double times(int64_t i) const { return factor.empty() ? 1.0 : factor[size_t(i)]; }
};

// The same gather with as few axes as can be: identities written out become plain, neighbouring plain axes one.
inline std::vector<Axis> simplified(std::vector<Axis> axes) {
    std::vector<Axis> result;
    for (Axis &axis : axes) {
        if (std::all_of(axis.factor.begin(), axis.factor.end(), [](double f) { return f == 1.0; }))
            axis.factor.clear();
        if (axis.plain() && axis.size == 1) continue;
        if (axis.plain() && !result.empty() && result.back().plain() &&
            result.back().stride == axis.size * axis.stride) {
            result.back().size *= axis.size;
            result.back().stride = axis.stride;
        } else {
            result.push_back(std::move(axis));
        }
    }
    if (result.empty()) result.push_back({1, 1, {}, {}});
    return result;
}

// How the output is cut: axis `split`, in tiles of `block` of its units, and all axes after it are the inside
// of a row; the axes before it count rows.
struct Cut {
    size_t split = 0;
    int64_t inner = 1;  // elements after `split`
    int64_t block = 1;
    int64_t rows = 1;
    int64_t tiles = 1;

    static constexpr int64_t TILE = 2048;    // elements with a table: 32 kB of it
    static constexpr int64_t RUN = 1 << 16;  // elements of a plain run, which needs none

    explicit Cut(const std::vector<Axis> &axes) {
        // What an element costs: its part of beginning a row, and of making the table that all rows share.
        constexpr double begin_row = 8, make_entry = 4;
        double best = -1;
        int64_t behind = 1, total = 1;
        for (const Axis &axis : axes) total *= axis.size;
        for (size_t k = axes.size(); k-- > 0; behind *= axes[k].size) {
            const bool run = axes[k].run() && k + 1 == axes.size();
            const int64_t most = (run ? RUN : TILE) / behind;
            if (most < 1) break;
            const int64_t before = total / (behind * axes[k].size);
            const int64_t cuts = (axes[k].size + most - 1) / most, length = (axes[k].size + cuts - 1) / cuts;
            const double cost = begin_row / double(length * behind) + (run ? 0 : make_entry / double(before));
            if (best < 0 || cost < best) {
                best = cost;
                split = k, inner = behind, block = length, rows = before;
                tiles = (axes[k].size + length - 1) / length;
            }
        }
    }
};

// What a row does inside one tile.
struct Program {
    enum Kind { ZERO, RUN, GATHER };
    struct Step {
        Kind kind;
        bool holes, scaled;  // of a gather: has it any? by factors of the table?
        int64_t begin, end;
        int64_t source;  // of a run
    };
    static constexpr int64_t LONG = 24;  // from here on, a stretch is a step of its own

    int64_t first = 0, length = 0;  // in the output, from where the row begins
    int64_t unit = 1;               // so many neighbours of a gather always move together
    std::vector<int64_t> offset;
    std::vector<double> factor;
    std::vector<Step> steps;

    // All that making programs will need, so that it can be done where nothing may fail.
    Program(const Cut &cut, const std::vector<Axis> &axes) {
        if (cut.split + 1 == axes.size() && axes.back().run()) {
            steps.reserve(1);
        } else {
            if (cut.split + 1 < axes.size() && axes.back().run()) unit = axes.back().size;
            offset.resize(size_t(cut.block * cut.inner));
            factor.resize(offset.size());
            steps.reserve(offset.size());
        }
    }

    void make(const Cut &cut, const std::vector<Axis> &axes, int64_t tile) {
        const Axis &axis = axes[cut.split];
        const int64_t begin = tile * cut.block, end = std::min(begin + cut.block, axis.size);
        first = begin * cut.inner;
        length = (end - begin) * cut.inner;
        steps.clear();
        if (offset.empty()) {
            steps.push_back({RUN, false, false, 0, length, begin});
            return;
        }
        for (int64_t i = begin; i < end; ++i) {
            offset[size_t(i - begin)] = axis.at(i);
            factor[size_t(i - begin)] = axis.times(i);
        }
        int64_t count = end - begin;
        for (size_t k = cut.split + 1; k < axes.size(); count *= axes[k++].size) spread(axes[k], count);
        for (int64_t j = 0; j < length;) j = add_stretch(j);
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
        if (end - begin >= LONG) {
            steps.push_back({hole ? ZERO : RUN, hole, scaled, begin, end, offset[size_t(begin)]});
        } else if (!steps.empty() && steps.back().kind == GATHER) {
            Step &last = steps.back();
            last.end = end;
            last.holes |= hole;
            last.scaled |= scaled;
        } else {
            steps.push_back({GATHER, hole, scaled, begin, end, 0});
        }
        return end;
    }
};

// Where a row begins in the source, and its factor: an odometer over the axes that count rows.
class Row {
  public:
    Row(const std::vector<Axis> &axes, size_t count, int64_t number) : axes_(axes.data()), count_(count) {
        for (size_t k = count; k-- > 0; number /= axes[k].size) at_[k] = number % axes[k].size;
    }

    void next() {
        for (size_t k = count_; k-- > 0; at_[k] = 0)
            if (++at_[k] < axes_[k].size) return;
    }

    void read(int64_t &from, double &times) const {
        from = 0, times = 1.0;
        for (size_t k = 0; k < count_; ++k) {
            const int64_t offset = axes_[k].at(at_[k]);
            from = from == HOLE || offset == HOLE ? HOLE : from + offset;
            times *= axes_[k].times(at_[k]);
        }
    }

  private:
    const Axis *axes_;
    size_t count_;
    int64_t at_[16] = {};
};

// One thread's way through its rows. The loops at the end are what all of this is for.
template <class Number> class Worker {
  public:
    using Stored = typename Number::Stored;
    using Factor = typename Number::Factor;
    static constexpr bool scales = Number::scales;

    Worker(const Cut &cut, const std::vector<Axis> &axes) : cut_(cut), axes_(axes), program_(cut, axes) {
        if (scales) scale_.resize(program_.factor.size());
    }

    // Rows [begin, end) of a tile.
    void work(int64_t tile, int64_t begin, int64_t end, const Stored *source, Stored *out) noexcept {
        if (tile != tile_) program_.make(cut_, axes_, tile_ = tile), ready_ = false;
        const int64_t row_length = axes_[cut_.split].size * cut_.inner;
        Row row(axes_, cut_.split, begin);
        for (int64_t r = begin; r < end; ++r, row.next()) {
            Stored *to = out + r * row_length + program_.first;
            int64_t from;
            double times;
            row.read(from, times);
            if (from == HOLE) {
                zero(to, program_.length);
                continue;
            }
            set_scale(times);
            for (const Program::Step &step : program_.steps) perform(step, times, source + from, to + step.begin);
        }
    }

  private:
    // What each element of the row is multiplied by. Mostly that is the same for all rows.
    void set_scale(double times) {
        if (ready_ && times == times_) return;
        ready_ = true, times_ = times;
        if constexpr (scales)
            for (size_t j = 0; j < scale_.size(); ++j)
                scale_[j] = program_.offset[j] == HOLE ? Factor(0) : Factor(times * program_.factor[j]);
    }

    void perform(const Program::Step &step, double times, const Stored *source, Stored *to) const {
        const int64_t n = step.end - step.begin;
        const bool scaled = scales && (step.scaled || times != 1.0);
        const Factor *scale = scale_.data() + step.begin;
        if (step.kind == Program::ZERO) {
            zero(to, n);
        } else if (step.kind == Program::RUN) {
            source += step.source;
            if (!scaled)
                std::memcpy(static_cast<void *>(to), source, size_t(n) * sizeof(Stored));
            else if (scale_.empty())
                multiply(source, Factor(times), to, n);
            else
                multiply(source, scale, to, n);
        } else {
            collect(step, source, to, n);
            if (scaled) multiply(to, scale, to, n);
        }
    }

    static void zero(Stored *to, int64_t n) { std::memset(static_cast<void *>(to), 0, size_t(n) * sizeof(Stored)); }

    void collect(const Program::Step &step, const Stored *__restrict source, Stored *__restrict to, int64_t n) const {
        const int64_t *__restrict offset = program_.offset.data() + step.begin;
        const int64_t unit = program_.unit;
        if (size_t(unit) * sizeof(Stored) >= 16) {
            for (int64_t j = 0; j < n; j += unit)
                if (offset[j] == HOLE)
                    zero(to + j, unit);
                else
                    copy_unit(source + offset[j], to + j, size_t(unit) * sizeof(Stored));
        } else if (step.holes) {
            for (int64_t j = 0; j < n; ++j) to[j] = offset[j] == HOLE ? Stored{} : source[offset[j]];
        } else {
            for (int64_t j = 0; j < n; ++j) to[j] = source[offset[j]];
        }
    }

    // Some 16 bytes or more, in pieces of 16, the last of which may overlap: much faster than a call.
    static void copy_unit(const void *source, void *to, size_t bytes) {
        const char *from = static_cast<const char *>(source), *last = from + bytes - 16;
        char *out = static_cast<char *>(to);
        for (; from < last; from += 16, out += 16) std::memcpy(out, from, 16);
        std::memcpy(static_cast<char *>(to) + bytes - 16, last, 16);
    }

    static void multiply(const Stored *source, const Factor *__restrict scale, Stored *to, int64_t n) {
        if constexpr (scales)
            for (int64_t j = 0; j < n; ++j) to[j] = Number::scale(source[j], scale[j]);
    }

    static void multiply(const Stored *source, Factor scale, Stored *to, int64_t n) {
        if constexpr (scales)
            for (int64_t j = 0; j < n; ++j) to[j] = Number::scale(source[j], scale);
    }

    const Cut &cut_;
    const std::vector<Axis> &axes_;
    Program program_;
    int64_t tile_ = -1;          // that the program is for
    std::vector<Factor> scale_;  // of the row before, for a program with a table
    double times_ = 1.0;
    bool ready_ = false;
};

// The axes describe `out`, their offsets are inside `source`: the caller has seen to that. No size is zero.
template <class Number>
void gather(std::vector<Axis> given, const void *source, void *out, size_t threads) {
    using Stored = typename Number::Stored;
    constexpr int64_t chunk = (1 << 18) / sizeof(Stored);  // what a thread takes at a time
    constexpr int64_t worth = (1 << 19) / sizeof(Stored);  // what one more thread must have to do

    const std::vector<Axis> axes = simplified(std::move(given));
    const Cut cut(axes);
    const int64_t size = axes[cut.split].size * cut.inner * cut.rows;
    const int64_t rows_at_once = std::max<int64_t>(1, chunk / (cut.block * cut.inner));
    const int64_t chunks_of_tile = (cut.rows + rows_at_once - 1) / rows_at_once;
    std::vector<Worker<Number>> workers(size_t(std::clamp<int64_t>(size / worth, 1, int64_t(threads))), {cut, axes});

    std::atomic<int64_t> next{0};
    auto work = [&](Worker<Number> &worker) noexcept {
        for (int64_t c = next++; c < chunks_of_tile * cut.tiles; c = next++) {
            const int64_t begin = c % chunks_of_tile * rows_at_once;
            worker.work(c / chunks_of_tile, begin, std::min(begin + rows_at_once, cut.rows),
                        static_cast<const Stored *>(source), static_cast<Stored *>(out));
        }
    };
    std::vector<std::thread> helpers;
    helpers.reserve(workers.size());
    try {
        for (size_t t = 1; t < workers.size(); ++t) helpers.emplace_back(work, std::ref(workers[t]));
    } catch (const std::system_error &) {
        // The system gives no more threads: those there are do the work.
    }
    work(workers[0]);
    for (std::thread &helper : helpers) helper.join();
}

}  // namespace modelkeeper
