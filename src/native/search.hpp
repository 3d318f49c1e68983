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

class Bounds {
  public:
    static constexpr int32_t GROUPS = 32;  // further groups share the last: the bound stays one

    // rewards: tokens x child_tokens; the child has `counts[j]` of its token j.
    Bounds(const Token *tokens, int64_t n, const Form &form, const Token *child, const int32_t *counts, const int32_t *rewards,
           int64_t edge)
        : k_(form.tokens), edge_(edge), counts_(counts), rewards_(rewards), child_(child), sums_(size_t(n)), child_group_(size_t(k_)) {
        const int32_t k = k_;
        count_links(form, child, links_);
        std::vector<int64_t> groups;
        for (int32_t j = 0; j < k; ++j) {
            const auto at = std::find(groups.begin(), groups.end(), child[j].group);
            child_group_[size_t(j)] = int32_t(std::min<int64_t>(at - groups.begin(), GROUPS - 1));
            if (at == groups.end()) groups.push_back(child[j].group);
            caps_[child_group_[size_t(j)]] += int64_t(counts[j]) * (child[j].weight + child[j].norm_weight);
        }
        for (int64_t s = 0; s < n; ++s) {
            Summary &sum = sums_[size_t(s)];
            const int32_t *const row = rewards + s * k;
            for (int32_t j = 0; j < k; ++j) {
                if (row[j] == 0) continue;
                sum.group = child_group_[size_t(j)];
                if (tokens[s] == child[j]) sum.same = j, sum.own = row[j], sum.limit = counts[j];
                else sum.best = std::max(sum.best, row[j]);
            }
        }
    }

    int64_t coarse(const Histograms &models, int64_t at) const {
        int64_t sums[GROUPS] = {}, total = 0;
        for (int64_t e = models.offset[at]; e < models.offset[at + 1]; ++e) {
            const Summary &sum = sums_[size_t(models.token[e])];
            sums[sum.group] += value(sum, models.count[e]);
        }
        for (int32_t g = 0; g < GROUPS; ++g) total += std::min(sums[g], caps_[g]);
        return total + edges(models, at);
    }

    // The same, and the child's side likewise: what each of its tokens can earn from this parent.
    int64_t fine(const Histograms &models, int64_t at, int32_t *best, int32_t *shared) const {
        int64_t sums[GROUPS] = {}, others[GROUPS] = {}, total = 0;
        std::fill_n(best, k_, 0);
        std::fill_n(shared, k_, 0);
        for (int64_t e = models.offset[at]; e < models.offset[at + 1]; ++e) {
            const int32_t token = models.token[e];
            const Summary &sum = sums_[size_t(token)];
            sums[sum.group] += value(sum, models.count[e]);
            if (sum.same >= 0) shared[sum.same] = std::min<int32_t>(models.count[e], sum.limit);
            if (sum.best == 0) continue;
            const int32_t *const row = rewards_ + int64_t(token) * k_;
            const int32_t keep = sum.same >= 0 ? best[sum.same] : 0;
            for (int32_t j = 0; j < k_; ++j) best[j] = std::max(best[j], row[j]);
            if (sum.same >= 0) best[sum.same] = keep;
        }
        for (int32_t j = 0; j < k_; ++j)
            others[child_group_[size_t(j)]] += int64_t(shared[j]) * (child_[j].weight + child_[j].norm_weight) +
                                               int64_t(counts_[j] - shared[j]) * best[j];
        for (int32_t g = 0; g < GROUPS; ++g) total += std::min(sums[g], others[g]);
        return total + edges(models, at);
    }

  private:
    struct Summary { int32_t same = -1, own = 0, limit = 0, best = 0, group = 0; };

    int64_t edges(const Histograms &models, int64_t at) const {
        int32_t both = 0;
        for (int32_t i = 0; i < LINKS; ++i) both += std::min(links_[i], models.links[at * LINKS + i]);
        return both * edge_;
    }

    static int64_t value(const Summary &sum, int32_t count) {
        const int32_t both = std::min(count, sum.limit);
        return int64_t(both) * sum.own + int64_t(count - both) * sum.best;
    }

    const int32_t k_;
    const int64_t edge_;
    uint16_t links_[LINKS];
    const int32_t *counts_, *rewards_;
    const Token *child_;
    std::vector<Summary> sums_;
    std::vector<int32_t> child_group_;
    int64_t caps_[GROUPS] = {};
};

}  // namespace modelkeeper
