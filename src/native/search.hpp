// Over many parents at once: how similar can each be at most, and how similar is it?
//
// A bound looks at histograms of tokens only. A parent's token that the child has too counts in full as
// often as both have it, and its best reward against any other token of the child otherwise; per
// group of tokens that can match at all, the smaller of the parent's and the child's sum. Every
// alignment matches tokens one to one and within groups, so none exceeds it. Edges likewise: one can
// only be matched with one that leads between the same two groups.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "colours.hpp"
#include "form.hpp"
#include "memory.hpp"
#include "tokens.hpp"

namespace modelkeeper {

// Over 0..n in pieces, on up to `threads` threads: each calls work() once, for a function of its own, and that
// for each of its pieces, with where it begins and ends.
template <class Work> void spread(int64_t n, int64_t piece, int threads, const Work &work) {
    const int64_t pieces = (n + piece - 1) / piece;
    std::atomic<int64_t> next{0};
    together(size_t(std::max<int64_t>(1, std::min<int64_t>(threads, pieces))), [&](size_t) {
        auto mine = work();
        for (int64_t k; (k = next.fetch_add(1)) < pieces;) mine(k * piece, std::min(n, (k + 1) * piece));
    });
}

constexpr int32_t LINKS = 16;  // kinds of edges, by a hash of the groups at both ends

// How many edges of each kind a form has.
inline void count_links(const Form &form, const Token *tokens, uint16_t *links) {
    std::fill_n(links, LINKS, 0);
    for (size_t x = 0; x < form.elements; ++x)
        for (size_t e = form.edge_offset[x]; e < form.edge_offset[x + 1]; ++e) {
            const uint16_t from = form.token[form.edge[e]], to = form.token[x];
            if (from == NONE || to == NONE) continue;
            ++links[mix(uint64_t(tokens[from].group), uint64_t(tokens[to].group)) % LINKS];
        }
}

struct Histograms {  // of each model: which tokens, how many of each, and how many edges of each kind
    const int64_t *offset;
    const int32_t *token;
    const uint16_t *count, *links;
};

// The best reward of a token against any of a child's, from above: in single precision, then rounded up.
// A whole zoo's tokens are looked at for every query, so this is where a search begins to cost.
class Glance {
  public:
    Glance(const ChildTokens &own, const Token *child, const Knobs &knobs)
        : child_(child), roots_(knobs.roots), less_(float(knobs.detail) / 1024) {
        for (size_t g = 0; g < own.groups(); ++g) {
            first_.push_back(number_.size());
            for (int32_t j = 0; j < own.group_size(g); ++j) add(own.group_of(g, j), child[own.group_of(g, j)], true);
            while (number_.size() % LANES) add(-1, Token{0, 0, 0, 0, 1, 0, 0, 1, {1, 1, 1, 1, 1, 1, 1, 1}}, false);
        }
        first_.push_back(number_.size());
        worth_.resize(number_.size());
    }

    // Which token of the child is this one? -1: none.
    int32_t same(const Token &a, size_t group) const {
        for (size_t j = first_[group]; j < first_[group + 1]; ++j)
            if (detail_[j] == a.detail && size_[0][j] == float(a.axes[0]) && number_[j] >= 0 && a == child_[number_[j]])
                return number_[j];
        return -1;
    }

    // What no reward of `a` against a token of this group, but for one, exceeds.
    int32_t best(const Token &a, size_t group, int32_t except) {
        look(a, first_[group], first_[group + 1]);
        float best = 0;
        for (size_t j = first_[group]; j < first_[group + 1]; ++j)
            if (worth_[j] > best && number_[j] != except) best = worth_[j];
        return int32_t(best * ABOVE) + 1;
    }

    // The same for each token of the group: raises what `bests` holds, by tokens of the child.
    void raise(const Token &a, size_t group, int32_t except, int32_t *bests) {
        look(a, first_[group], first_[group + 1]);
        for (size_t j = first_[group]; j < first_[group + 1]; ++j) {
            const int32_t t = number_[j];
            if (t >= 0 && t != except) bests[t] = std::max(bests[t], int32_t(worth_[j] * ABOVE) + 1);
        }
    }

  private:
    static constexpr size_t LANES = 16, FIELDS = Token::AXES + 1;
    static constexpr float ABOVE = 1.00001f;  // single precision errs by less

    static float field(const Token &token, size_t i) {
        return float(i < Token::AXES ? token.axes[i] : token.norm_width);
    }

    void add(int32_t number, const Token &token, bool real) {
        number_.push_back(number);
        detail_.push_back(token.detail);
        norm_group_.push_back(real && token.norm_group != 0 ? token.norm_group : -1);
        for (size_t i = 0; i < FIELDS; ++i)
            size_[i].push_back(field(token, i)), inverse_[i].push_back(1.0f / field(token, i));
        weight_.push_back(float(token.weight));
        norm_.push_back(float(token.norm_weight));
    }

    // Axes that `a` does not use are left out: that only raises the ratio. So does the rank.
    MODELKEEPER_WIDE void look(const Token &a, size_t from, size_t to) {
        float size[FIELDS], inverse[FIELDS];
        for (size_t i = 0; i < FIELDS; ++i) size[i] = field(a, i), inverse[i] = 1.0f / size[i];
        size_t count = Token::AXES;
        while (count > 0 && a.axes[count - 1] == 1) --count;
        const float weight = float(a.weight), norm_weight = float(a.norm_weight);
        for (; from < to; from += LANES) {
            float ratio[LANES], norm[LANES];
            for (size_t j = 0; j < LANES; ++j) ratio[j] = 1;
            for (size_t i = 0; i < count; ++i) {
                const float *const other = size_[i].data() + from, *const its = inverse_[i].data() + from;
                for (size_t j = 0; j < LANES; ++j) {
                    const float up = size[i] * its[j], down = other[j] * inverse[i];
                    ratio[j] *= up < down ? up : down;
                }
            }
            const float *const other = size_[Token::AXES].data() + from;
            const float *const its = inverse_[Token::AXES].data() + from;
            for (size_t j = 0; j < LANES; ++j) {
                const float up = size[Token::AXES] * its[j], down = other[j] * inverse[Token::AXES];
                norm[j] = up < down ? up : down;
            }
            for (int64_t r = 0; r < roots_; ++r)
                for (size_t j = 0; j < LANES; ++j) ratio[j] = std::sqrt(ratio[j]), norm[j] = std::sqrt(norm[j]);
            const float *const weights = weight_.data() + from, *const norms = norm_.data() + from;
            const int64_t *const detail = detail_.data() + from, *const group = norm_group_.data() + from;
            float *const worth = worth_.data() + from;
            for (size_t j = 0; j < LANES; ++j) {
                const float own =
                    ratio[j] * (weights[j] < weight ? weights[j] : weight) * (detail[j] == a.detail ? 1.0f : less_);
                const float of_norm = norm[j] * (norms[j] < norm_weight ? norms[j] : norm_weight);
                worth[j] = own + (group[j] == a.norm_group ? of_norm : 0.0f);
            }
        }
    }

    const Token *child_;
    int64_t roots_;
    float less_;
    std::vector<size_t> first_;
    std::vector<int32_t> number_;
    std::vector<int64_t> detail_, norm_group_;
    std::vector<float> size_[FIELDS], inverse_[FIELDS], weight_, norm_, worth_;
};

class Bounds {
  public:
    static constexpr size_t GROUPS = 32;  // further groups share the last: the bound stays one

    // The child has `counts[j]` of its token j. All `n` tokens of the store are looked at here, once.
    Bounds(const Token *tokens, int64_t n, const Form &form, const Token *child, const int32_t *counts,
           const Knobs &knobs, int threads)
        : tokens_(tokens),
          child_(child),
          counts_(counts),
          k_(form.tokens),
          knobs_(knobs),
          own_(child, form.tokens, knobs),
          sums_(size_t(n)) {
        count_links(form, child, links_);
        for (size_t g = 0; g < own_.groups(); ++g)
            for (int32_t j = 0; j < own_.group_size(g); ++j) {
                const int32_t t = own_.group_of(g, j);
                caps_[std::min(g, GROUPS - 1)] += int64_t(counts[t]) * weight(t);
            }
        spread(n, 2048, threads, [&] {
            return [&, mine = Glance(own_, child, knobs_)](int64_t begin, int64_t end) mutable {
                for (int64_t s = begin; s < end; ++s) sums_[size_t(s)] = summary(tokens[s], mine);
            };
        });
    }

    int64_t coarse(const Histograms &models, int64_t at) const {
        int64_t sums[GROUPS] = {}, total = 0;
        for (int64_t e = models.offset[at]; e < models.offset[at + 1]; ++e) {
            const Summary &sum = sums_[size_t(models.token[e])];
            sums[sum.group] += value(sum, models.count[e]);
        }
        for (size_t g = 0; g < GROUPS; ++g) total += std::min(sums[g], caps_[g]);
        return total + edges(models, at);
    }

    // What a thread needs to look closer.
    struct Scratch {
        Glance glance;
        std::vector<int32_t> best, shared;
    };
    Scratch scratch() const {
        return {Glance(own_, child_, knobs_), std::vector<int32_t>(size_t(k_)), std::vector<int32_t>(size_t(k_))};
    }

    // The same, and the child's side likewise: what each of its tokens can earn from this parent.
    int64_t fine(const Histograms &models, int64_t at, Scratch &scratch) const {
        int64_t sums[GROUPS] = {}, others[GROUPS] = {}, total = 0;
        std::fill(scratch.best.begin(), scratch.best.end(), 0);
        std::fill(scratch.shared.begin(), scratch.shared.end(), 0);
        for (int64_t e = models.offset[at]; e < models.offset[at + 1]; ++e) {
            const Token &token = tokens_[models.token[e]];
            const Summary &sum = sums_[size_t(models.token[e])];
            sums[sum.group] += value(sum, models.count[e]);
            if (sum.same >= 0) scratch.shared[size_t(sum.same)] = std::min<int32_t>(models.count[e], sum.limit);
            if (sum.best == 0) continue;
            const size_t group = size_t(own_.group(token));
            scratch.glance.raise(token, group, sum.same, scratch.best.data());
        }
        for (size_t g = 0; g < own_.groups(); ++g)
            for (int32_t j = 0; j < own_.group_size(g); ++j) {
                const int32_t t = own_.group_of(g, j), shared = scratch.shared[size_t(t)];
                others[std::min(g, GROUPS - 1)] +=
                    shared * weight(t) + int64_t(counts_[t] - shared) * scratch.best[size_t(t)];
            }
        for (size_t g = 0; g < GROUPS; ++g) total += std::min(sums[g], others[g]);
        return total + edges(models, at);
    }

  private:
    struct Summary {
        int32_t own = 0, best = 0;      // the reward against the same token; what no reward against another exceeds
        uint16_t limit = 0, group = 0;  // how many of the same token the child has
        int32_t same = -1;              // which one it is
    };

    int64_t weight(int32_t t) const { return child_[t].weight + child_[t].norm_weight; }

    Summary summary(const Token &token, Glance &glance) const {
        Summary sum;
        const int32_t group = own_.group(token);
        if (group < 0) return sum;
        sum.group = uint16_t(std::min(size_t(group), GROUPS - 1));
        sum.same = glance.same(token, size_t(group));
        if (sum.same >= 0) sum.own = int32_t(weight(sum.same)), sum.limit = uint16_t(counts_[sum.same]);
        sum.best = glance.best(token, size_t(group), sum.same);
        return sum;
    }

    int64_t edges(const Histograms &models, int64_t at) const {
        int32_t both = 0;
        for (int32_t i = 0; i < LINKS; ++i) both += std::min(links_[i], models.links[at * LINKS + i]);
        return both * knobs_.edge;
    }

    static int64_t value(const Summary &sum, int32_t count) {
        const int32_t both = std::min<int32_t>(count, sum.limit);
        return int64_t(both) * sum.own + int64_t(count - both) * sum.best;
    }

    const Token *tokens_, *child_;
    const int32_t *counts_;
    const int32_t k_;
    const Knobs knobs_;
    const ChildTokens own_;
    std::vector<Summary> sums_;
    uint16_t links_[LINKS];
    int64_t caps_[GROUPS] = {};
};

}  // namespace modelkeeper
