// How much is it worth when one layer lends to another?
//
// A token says of a layer what matters for lending, as 16 numbers (see similarity.py, which makes
// them and owns every constant). Rewards are whole numbers, floored, so that sums are exact and
// the same on every machine: only +, *, / and sqrt are used, which IEEE 754 rounds one way.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace modelkeeper {

struct Token {
    static constexpr size_t AXES = 8, FIELDS = 8 + AXES;
    int64_t group, detail, norm_group, rank, groups, weight, norm_weight, norm_width;
    int64_t axes[AXES];  // sizes of the main tensor: out, in, then the kernel; unused ones are 1

    bool operator==(const Token &other) const { return std::memcmp(this, &other, sizeof(Token)) == 0; }
    bool pointwise() const {  // a 1x1 convolution, or linear
        for (size_t i = 2; i < AXES; ++i)
            if (axes[i] != 1) return false;
        return true;
    }
};
static_assert(sizeof(Token) == Token::FIELDS * sizeof(int64_t));

struct Knobs {
    int64_t roots;         // how often the ratio of two shapes is put under a square root
    int64_t detail;        // in 1/1024: what is left of a reward when attributes differ
    int64_t edge;          // the worth of an edge whose ends are both matched to those of an edge
    int64_t other_label;   // the same where what lies on the two edges differs
};

inline int64_t share(double weight, double small, double large, int64_t roots) {
    double ratio = small / large;
    for (int64_t i = 0; i < roots; ++i) ratio = std::sqrt(ratio);
    return int64_t(weight * ratio);
}

// Never above the weight of either token, and equal to it only for equal ones.
inline int32_t reward(const Token &a, const Token &b, const Knobs &knobs) {
    if (a.group != b.group || a.group == 0) return 0;
    if (a.rank != b.rank && !(a.pointwise() && b.pointwise())) return 0;
    if (std::max(a.groups, b.groups) % std::min(a.groups, b.groups)) return 0;
    double small = 1, large = 1;
    for (size_t i = 0; i < Token::AXES; ++i) {
        small *= double(std::min(a.axes[i], b.axes[i]));
        large *= double(std::max(a.axes[i], b.axes[i]));
    }
    int64_t worth = share(double(std::min(a.weight, b.weight)), small, large, knobs.roots);
    if (a.detail != b.detail || a.rank != b.rank || a.groups != b.groups) worth = worth * knobs.detail / 1024;
    if (a.norm_group == b.norm_group && a.norm_group != 0)
        worth += share(double(std::min(a.norm_weight, b.norm_weight)), double(std::min(a.norm_width, b.norm_width)),
                       double(std::max(a.norm_width, b.norm_width)), knobs.roots);
    return int32_t(worth);
}

}  // namespace modelkeeper
