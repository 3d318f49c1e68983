// How is a gather cut into rows and tiles, and in which order are they made?
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

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
    std::vector<size_t> visit;  // the axes that count rows, in the order of how far their units are apart
    bool moved = false;         // do neighbours in a row lie farther apart than those of another axis?
    int64_t inner = 1;  // elements after `split`
    int64_t block = 1;
    int64_t rows = 1;
    int64_t tiles = 1;

    static constexpr int64_t TILE = 8192;    // elements with a table, which stays in a near cache
    static constexpr int64_t RUN = 1 << 16;  // elements of a plain run, which needs none
    static constexpr int64_t MOVED = 64;    // elements that lie far apart: a line of memory for each of them

    explicit Cut(const std::vector<Axis> &axes) {
        // What an element costs: its part of beginning a row, and of making the table that all rows share.
        constexpr double begin_row = 8, make_entry = 4;
        double best = -1;
        int64_t behind = 1, total = 1;
        for (const Axis &axis : axes) total *= axis.size;
        for (const Axis &axis : axes) moved |= axis.stride < axes.back().stride && axis.size > 1;
        for (size_t k = axes.size(); k-- > 0; behind *= axes[k].size) {
            const bool run = axes[k].run() && k + 1 == axes.size();
            const int64_t most = (run ? RUN : moved ? MOVED : TILE) / behind;
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
        for (size_t k = 0; k < split; ++k) visit.push_back(k);
        if (moved)
            std::stable_sort(visit.begin(), visit.end(),
                             [&](size_t a, size_t b) { return axes[a].stride > axes[b].stride; });
    }
};

// Where a row begins in the source, its factor and its number: an odometer over the axes that count rows.
class Row {
  public:
    Row(const std::vector<Axis> &axes, const Cut &cut, int64_t visited) : axes_(axes.data()), visit_(cut.visit) {
        for (size_t v = visit_.size(); v-- > 0; visited /= axes[visit_[v]].size)
            at_[visit_[v]] = visited % axes[visit_[v]].size;
    }

    void next() {
        for (size_t v = visit_.size(); v-- > 0; at_[visit_[v]] = 0)
            if (++at_[visit_[v]] < axes_[visit_[v]].size) return;
    }

    void read(int64_t &from, double &times) const {
        from = 0, times = 1.0;
        for (size_t k = 0; k < visit_.size(); ++k) {
            const int64_t offset = axes_[k].at(at_[k]);
            from = from == HOLE || offset == HOLE ? HOLE : from + offset;
            times *= axes_[k].times(at_[k]);
        }
    }

    int64_t number() const {
        int64_t number = 0;
        for (size_t k = 0; k < visit_.size(); ++k) number = number * axes_[k].size + at_[k];
        return number;
    }

  private:
    const Axis *axes_;
    const std::vector<size_t> &visit_;
    int64_t at_[16] = {};
};

}  // namespace modelkeeper
