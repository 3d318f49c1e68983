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
#include <thread>
#include <vector>

#include "align.hpp"

namespace modelkeeper {

// Run work(begin, end) over 0..n in pieces, on up to `threads` threads.
template <class Work> void spread(int64_t n, int64_t piece, int threads, const Work &work) {
    const int64_t pieces = (n + piece - 1) / piece;
    std::atomic<int64_t> next{0};
    auto run = [&] {
        auto mine = work();
        for (int64_t k; (k = next.fetch_add(1)) < pieces;) mine(k * piece, std::min(n, (k + 1) * piece));
    };
    std::vector<std::thread> others;
    for (int64_t t = 1; t < std::min<int64_t>(threads, pieces); ++t) others.emplace_back(run);
    run();
    for (auto &thread : others) thread.join();
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
    Glance(const ChildTokens &own, const Token *child, const Knobs &knobs) : knobs_(knobs) {
        for (size_t g = 0; g < own.groups(); ++g) {
            first_.push_back(tokens_.size());
            for (int32_t j = 0; j < own.group_size(g); ++j) {
                const Token &token = child[own.group_of(g, j)];
                tokens_.push_back(&token);
                for (size_t i = 0; i < FIELDS; ++i) size_[i].push_back(field(token, i)), inverse_[i].push_back(1.0f / field(token, i));
                weight_.push_back(float(token.weight));
                norm_.push_back(float(token.norm_weight));
            }
            while (tokens_.size() % LANES) {  // a lane that earns nothing
                tokens_.push_back(nullptr);
                for (size_t i = 0; i < FIELDS; ++i) size_[i].push_back(1), inverse_[i].push_back(1);
                weight_.push_back(0);
                norm_.push_back(0);
            }
        }
        first_.push_back(tokens_.size());
        worth_.resize(tokens_.size());
        norm_worth_.resize(tokens_.size());
    }

    int32_t best(const Token &a, size_t group, const Token *except) {
        const size_t from = first_[group], to = first_[group + 1];
        float size[FIELDS], inverse[FIELDS];
        for (size_t i = 0; i < FIELDS; ++i) size[i] = field(a, i), inverse[i] = 1.0f / size[i];
        size_t count = Token::AXES;
        while (count > 0 && a.axes[count - 1] == 1) --count;
        // Axes that `a` does not use are left out: that only raises the ratio.
        ratios(0, count, from, to, size, inverse, float(a.weight), weight_.data(), worth_.data());
        if (a.norm_group != 0) ratios(Token::AXES, FIELDS, from, to, size, inverse, float(a.norm_weight), norm_.data(), norm_worth_.data());
        float best = 0;
        const float less = float(knobs_.detail) / 1024;
        for (size_t j = from; j < to && tokens_[j]; ++j) {
            const Token &b = *tokens_[j];
            if (&b == except) continue;
            float worth = a.detail == b.detail ? worth_[j] : worth_[j] * less;
            if (a.norm_group != 0 && a.norm_group == b.norm_group) worth += norm_worth_[j];
            best = std::max(best, worth);
        }
        return int32_t(best * 1.00001f) + 1;
    }

  private:
    static constexpr size_t LANES = 16, FIELDS = Token::AXES + 1;
    static float field(const Token &token, size_t i) { return float(i < Token::AXES ? token.axes[i] : token.norm_width); }

    MODELKEEPER_WIDE void ratios(size_t low, size_t high, size_t from, size_t to, const float *size, const float *inverse, float weight,
                                 const float *weights, float *result) const {
        for (; from < to; from += LANES) {
            float ratio[LANES];
            for (size_t j = 0; j < LANES; ++j) ratio[j] = 1;
            for (size_t i = low; i < high; ++i) {
                const float *const other = size_[i].data() + from, *const its = inverse_[i].data() + from;
                for (size_t j = 0; j < LANES; ++j) {
                    const float up = size[i] * its[j], down = other[j] * inverse[i];
                    ratio[j] *= up < down ? up : down;
                }
            }
            for (int64_t r = 0; r < knobs_.roots; ++r)
                for (size_t j = 0; j < LANES; ++j) ratio[j] = std::sqrt(ratio[j]);
            for (size_t j = 0; j < LANES; ++j) result[from + j] = ratio[j] * (weights[from + j] < weight ? weights[from + j] : weight);
        }
    }

    const Knobs knobs_;
    std::vector<size_t> first_;
    std::vector<const Token *> tokens_;
    std::vector<float> size_[FIELDS], inverse_[FIELDS], weight_, norm_, worth_, norm_worth_;
};

class Bounds {
  public:
    static constexpr size_t GROUPS = 32;  // further groups share the last: the bound stays one

    // The child has `counts[j]` of its token j. All `n` tokens of the store are looked at here, once.
    Bounds(const Token *tokens, int64_t n, const Form &form, const Token *child, const int32_t *counts, const Knobs &knobs, int threads)
        : tokens_(tokens), child_(child), counts_(counts), k_(form.tokens), knobs_(knobs), own_(child, form.tokens, knobs), sums_(size_t(n)) {
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
        ChildTokens tokens;
        std::vector<int32_t> best, shared;
    };
    Scratch scratch() const { return {own_, std::vector<int32_t>(size_t(k_)), std::vector<int32_t>(size_t(k_))}; }

    // The same, and the child's side likewise: what each of its tokens can earn from this parent.
    int64_t fine(const Histograms &models, int64_t at, Scratch &scratch) const {
        int64_t sums[GROUPS] = {}, others[GROUPS] = {}, total = 0;
        std::fill(scratch.best.begin(), scratch.best.end(), 0);
        std::fill(scratch.shared.begin(), scratch.shared.end(), 0);
        for (int64_t e = models.offset[at]; e < models.offset[at + 1]; ++e) {
            const int32_t token = models.token[e];
            const Summary &sum = sums_[size_t(token)];
            sums[sum.group] += value(sum, models.count[e]);
            if (sum.same >= 0) scratch.shared[size_t(sum.same)] = std::min<int32_t>(models.count[e], sum.limit);
            if (sum.best == 0) continue;
            const size_t group = size_t(own_.group(tokens_[token]));
            const int32_t *const worth = scratch.tokens.within(tokens_[token], group);
            for (int32_t j = 0; j < own_.group_size(group); ++j) {
                const int32_t t = own_.group_of(group, j);
                if (t != sum.same) scratch.best[size_t(t)] = std::max(scratch.best[size_t(t)], worth[j]);
            }
        }
        for (size_t g = 0; g < own_.groups(); ++g)
            for (int32_t j = 0; j < own_.group_size(g); ++j) {
                const size_t t = size_t(own_.group_of(g, j));
                others[std::min(g, GROUPS - 1)] +=
                    int64_t(scratch.shared[t]) * weight(int32_t(t)) + int64_t(counts_[t] - scratch.shared[t]) * scratch.best[t];
            }
        for (size_t g = 0; g < GROUPS; ++g) total += std::min(sums[g], others[g]);
        return total + edges(models, at);
    }

  private:
    struct Summary {
        int32_t own = 0, best = 0;        // the reward against the same token; what no reward against another exceeds
        uint16_t limit = 0, group = 0;    // how many of the same token the child has
        int32_t same = -1;                // which one it is
    };

    int64_t weight(int32_t t) const { return child_[t].weight + child_[t].norm_weight; }

    Summary summary(const Token &token, Glance &glance) const {
        Summary sum;
        const int32_t group = own_.group(token);
        if (group < 0) return sum;
        sum.group = uint16_t(std::min(size_t(group), GROUPS - 1));
        for (int32_t j = 0; j < own_.group_size(size_t(group)); ++j) {
            const int32_t t = own_.group_of(size_t(group), j);
            if (token.detail == child_[t].detail && token == child_[t]) sum.same = t, sum.own = int32_t(weight(t)), sum.limit = uint16_t(counts_[t]);
        }
        sum.best = glance.best(token, size_t(group), sum.same < 0 ? nullptr : child_ + sum.same);
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
