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
#include <utility>
#include <vector>

namespace modelkeeper {

struct Token {
    static constexpr size_t AXES = 8, FIELDS = 8 + AXES;
    int64_t group, detail, norm_group, rank, groups, weight, norm_weight, norm_width;
    static constexpr size_t STAGE = 4;  // this one is no axis, but says how often halved what lies behind is
    int64_t axes[AXES];  // sizes of the main tensor: out, in, then the kernel; unused ones are 1

    bool operator==(const Token &other) const { return std::memcmp(this, &other, sizeof(Token)) == 0; }
    bool pointwise() const {  // a 1x1 convolution, or linear
        for (size_t i = 2; i < AXES; ++i)
            if (axes[i] != 1 && i != STAGE) return false;
        return true;
    }
};
static_assert(sizeof(Token) == Token::FIELDS * sizeof(int64_t));

struct Knobs {
    int64_t roots;        // how often the ratio of two shapes is put under a square root
    int64_t detail;       // in 1/1024: what is left of a reward when attributes differ
    int64_t edge;         // the worth of an edge whose ends are both matched to those of an edge
    int64_t other_label;  // the same where what lies on the two edges differs
};

// All loops that take time are compiled for several kinds of processors; the right one is chosen at load.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__GLIBC__)
#define MODELKEEPER_WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MODELKEEPER_WIDE
#endif

// The tokens of a child, field by field and group by group, so that a row of rewards is one loop.
class ChildTokens {
  public:
    ChildTokens(const Token *tokens, size_t n, const Knobs &knobs) : knobs_(knobs), order_(n) {
        for (size_t j = 0; j < n; ++j) order_[j] = int32_t(j);
        std::sort(order_.begin(), order_.end(), [tokens](int32_t a, int32_t b) {
            return std::pair(tokens[a].group, a) < std::pair(tokens[b].group, b);
        });
        for (int32_t j : order_) {
            const Token &token = tokens[j];
            if (groups_.empty() || groups_.back().group != token.group) {
                pad();
                groups_.push_back({token.group, int32_t(sorted_.size()), int32_t(weight_.size()), 0, 0});
            }
            Group &group = groups_.back();
            ++group.size;
            group.axes = std::max(group.axes, used(token));
            sorted_.push_back(token);
            weight_.push_back(double(token.weight));
            norm_weight_.push_back(double(token.norm_weight));
            norm_width_.push_back(double(token.norm_width));
            for (size_t i = 0; i < Token::AXES; ++i) axes_[i].push_back(double(token.axes[i]));
        }
        pad();
        worth_.resize(n + LANES), norm_.resize(n + LANES);
    }

    size_t size() const { return order_.size(); }
    size_t groups() const { return groups_.size(); }
    int32_t group_of(size_t number, int32_t j) const { return order_[size_t(groups_[number].first + j)]; }
    int32_t group_size(size_t number) const { return groups_[number].size; }

    // The number of the child's group that this token may match, or -1.
    int32_t group(const Token &a) const {
        const auto at = std::lower_bound(groups_.begin(), groups_.end(), a.group,
                                         [](const Group &g, int64_t value) { return g.group < value; });
        return at == groups_.end() || at->group != a.group || a.group == 0 ? -1 : int32_t(at - groups_.begin());
    }

    // The rewards of `a` against the tokens of one group, in the group's order: never above the weight of
    // either, and equal to it only for equal tokens.
    const int32_t *within(const Token &a, size_t number) {
        const Group &group = groups_[number];
        const size_t first = size_t(group.first), place = size_t(group.place);
        const double *axes[Token::AXES];
        double sizes[Token::AXES];
        const size_t count = std::max(used(a), group.axes);
        for (size_t i = 0; i < count; ++i) axes[i] = axes_[i].data() + place, sizes[i] = double(a.axes[i]);
        share(worth_.data(), group.size, double(a.weight), weight_.data() + place, axes, sizes, count, knobs_.roots);
        const bool pointwise = a.pointwise();
        for (int32_t j = 0; j < group.size; ++j) {
            const Token &b = sorted_[first + size_t(j)];
            if (a.rank != b.rank && !(pointwise && b.pointwise()))
                worth_[size_t(j)] = 0;
            else if (a.groups != b.groups && !divides(a.groups, b.groups))
                worth_[size_t(j)] = 0;
            else if (a.detail != b.detail || a.rank != b.rank || a.groups != b.groups)
                worth_[size_t(j)] = int32_t(int64_t(worth_[size_t(j)]) * knobs_.detail / 1024);
        }
        if (a.norm_group != 0) {
            const double *width = norm_width_.data() + place, own = double(a.norm_width);
            share(norm_.data(), group.size, double(a.norm_weight), norm_weight_.data() + place, &width, &own, 1,
                  knobs_.roots);
            for (int32_t j = 0; j < group.size; ++j)
                if (worth_[size_t(j)] > 0 && sorted_[first + size_t(j)].norm_group == a.norm_group)
                    worth_[size_t(j)] += norm_[size_t(j)];
        }
        return worth_.data();
    }

    // A whole row, in the child's own order.
    void row(const Token &a, int32_t *rewards) {
        std::fill_n(rewards, size(), 0);
        const int32_t number = group(a);
        if (number < 0) return;
        const int32_t *const worth = within(a, size_t(number));
        for (int32_t j = 0; j < groups_[size_t(number)].size; ++j) rewards[group_of(size_t(number), j)] = worth[j];
    }

  private:
    struct Group {
        int64_t group;
        int32_t first, place;  // its tokens in order_ and sorted_; in the arrays that are filled up to whole lanes
        int32_t size;
        size_t axes;
    };

    static bool divides(int64_t a, int64_t b) { return std::min(a, b) > 0 && std::max(a, b) % std::min(a, b) == 0; }

    static size_t used(const Token &token) {
        size_t count = Token::AXES;
        while (count > 0 && token.axes[count - 1] == 1) --count;
        return count;
    }

    void pad() {  // up to a whole number of lanes, so that loops over them have a fixed length
        while (weight_.size() % LANES) {
            for (auto *field : {&weight_, &norm_weight_, &norm_width_}) field->push_back(1);
            for (auto &axis : axes_) axis.push_back(1);
        }
    }

    // worth[j] = the smaller weight, times the ratio of the two shapes under so many square roots.
    MODELKEEPER_WIDE static void share(int32_t *__restrict worth, int32_t n, double weight,
                                       const double *__restrict weights, const double *const *axes, const double *sizes,
                                       size_t count, int64_t roots) {
        for (size_t from = 0; from < size_t(n); from += LANES) {
            double small[LANES], large[LANES];
            for (size_t j = 0; j < LANES; ++j) small[j] = large[j] = 1;
            for (size_t i = 0; i < count; ++i) {
                const double *const axis = axes[i] + from, size = sizes[i];
                for (size_t j = 0; j < LANES; ++j) {
                    small[j] *= axis[j] < size ? axis[j] : size;
                    large[j] *= axis[j] < size ? size : axis[j];
                }
            }
            for (size_t j = 0; j < LANES; ++j) small[j] /= large[j];
            for (int64_t r = 0; r < roots; ++r)
                for (size_t j = 0; j < LANES; ++j) small[j] = std::sqrt(small[j]);
            for (size_t j = 0; j < LANES; ++j)
                worth[from + j] = int32_t((weights[from + j] < weight ? weights[from + j] : weight) * small[j]);
        }
    }

    static constexpr size_t LANES = 8;
    Knobs knobs_;
    std::vector<int32_t> order_;
    std::vector<Group> groups_;
    std::vector<Token> sorted_;
    std::vector<double> weight_, norm_weight_, norm_width_, axes_[Token::AXES];
    std::vector<int32_t> worth_, norm_;
};

}  // namespace modelkeeper
