// Would other pairs serve better?
//
// Where regions describe a graph, the best path is the best alignment. Elsewhere (NAS cells, towers, HRNet) it
// is not: two graphs that differ in one layer may be put in orders that differ in more, and what stands in
// another order is lost. There, pairs are tried one after the other that keep series in series and parallel in
// parallel. A pair that is at odds with others takes their place, and what they left is matched anew; it stays
// if layers and edges together then score more. That is done twice, from the path's pairs and from those whose
// surroundings are most alike; the better counts. So the score never falls.
//
// Everything goes in the canonical order of elements, so that the result depends on nothing else.
#pragma once
#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "arena.hpp"
#include "form.hpp"
#include "tokens.hpp"

namespace modelkeeper {

// How many of `ours` differ from `theirs` where `used` is set: whether a pair fits to the others.
MODELKEEPER_WIDE inline int32_t differing(const uint8_t *__restrict ours, const uint8_t *__restrict theirs,
                                          const uint8_t *__restrict used, int32_t n) {
    int32_t count = 0;
    for (int32_t j = 0; j < n; ++j) count += (ours[j] != theirs[j]) & used[j];
    return count;
}

// Do steps leave out edges of a graph? Then it is not series-parallel. Edges that were set aside do not count.
inline bool tangled(const Form &form, Arena &arena) {
    const Arena::Mark mark = arena.mark();
    char *const aside = arena.take<char>(form.elements);
    std::fill_n(aside, form.elements, 0);
    for (size_t b = 0; b < form.branches; ++b)
        if (form.branch_label[b] == ASIDE)
            for (size_t x = form.low[b]; x <= form.high[b]; ++x) aside[x] = 1;
    auto steps_to = [&form](auto &self, size_t x, uint16_t from) -> bool {
        for (size_t e = form.step_offset[x]; e < form.step_offset[x + 1]; ++e) {
            const uint16_t step = form.step[e];
            if (step == from) return true;
            if (step != NONE && step > from && form.token[step] == NONE && self(self, step, from))
                return true;  // through a virtual join
        }
        return false;
    };
    bool found = false;
    for (size_t x = 0; x < form.elements && !found; ++x)
        for (size_t e = form.edge_offset[x]; e < form.edge_offset[x + 1] && !found; ++e)
            found = !aside[form.edge[e]] && !steps_to(steps_to, x, form.edge[e]);
    arena.release(mark);
    return found;
}

class Improver {
  public:
    // Beyond these sizes the best path must do.
    static constexpr size_t MOST = 320;               // elements
    static constexpr int64_t MOST_EDGES = 1 << 19;    // edges of the one times edges of the other
    static constexpr int64_t WORK = 1'000'000;        // about a millisecond, twice
    static constexpr int SPREAD = 6;                  // how many steps around a pair its surroundings reach
    static constexpr int32_t REPAIRED = 4;            // pairs that one pair may take the place of

    using Pairs = std::vector<std::pair<uint16_t, uint16_t>>;

    // Both must be tangled: what is not is aligned well by regions, and takes part in far more searches.
    static bool applies(const Form &p, const Form &c, Arena &arena) {
        return p.elements <= MOST && c.elements <= MOST && int64_t(p.edges) * c.edges <= MOST_EDGES &&
               tangled(p, arena) && tangled(c, arena);
    }

    // worth(x, y): what a match of these two elements earns.
    template <class Worth>
    void improve(const Form &p, const Form &c, const Knobs &knobs, const Worth &worth, Pairs &pairs) {
        p_ = &p, c_ = &c, knobs_ = &knobs;
        n_ = p.elements, m_ = c.elements;
        worth_.resize(size_t(n_) * size_t(m_));
        for (int32_t x = 0; x < n_; ++x)
            for (int32_t y = 0; y < m_; ++y) worth_[at(x, y)] = worth(x, y);
        relate(p, ours_), relate(c, theirs_);
        readers();
        clear();
        for (const auto &[x, y] : pairs) set(x, y);
        climb();
        const int64_t score = total();
        const std::vector<int16_t> kept = image_;
        seed();
        climb();
        if (total() <= score) image_ = kept;
        pairs.clear();
        for (int32_t y = 0; y < m_; ++y)
            if (image_[size_t(y)] >= 0) pairs.push_back({uint16_t(image_[size_t(y)]), uint16_t(y)});
    }

  private:
    size_t at(int32_t x, int32_t y) const { return size_t(x) * size_t(m_) + size_t(y); }

    void clear() {
        image_.assign(size_t(m_), -1), back_.assign(size_t(n_), -1), used_.assign(size_t(m_), 0);
        seen_.assign(size_t(n_) * size_t(m_), 0);
    }

    // Try pairs as long as one is better.
    void climb() {
        work_ = 0;
        for (bool better = true; better && work_ < WORK;) {
            better = false;
            for (int32_t y = 0; y < m_ && work_ < WORK; ++y) {
                int32_t known = image_[size_t(y)] < 0 ? 0 : earns(image_[size_t(y)], y);
                const int32_t edges = int32_t(knobs_->edge) * degree(y);
                for (int32_t x = 0; x < n_ && work_ < WORK; ++x) {
                    const int32_t earned = worth_[at(x, y)];
                    if (earned == 0 || earned + edges <= known || image_[size_t(y)] == x || !attempt(x, y)) continue;
                    better = true;
                    known = image_[size_t(y)] < 0 ? 0 : earns(image_[size_t(y)], y);
                }
            }
        }
    }

    int64_t total() const {
        int64_t sum = 0;
        for (int32_t y = 0; y < m_; ++y) {
            const int32_t x = image_[size_t(y)];
            if (x < 0) continue;
            sum += worth_[at(x, y)];
            for (int32_t e = c_->edge_offset[y]; e < c_->edge_offset[y + 1]; ++e)
                if (const int32_t from = image_[c_->edge[e]]; from >= 0) sum += edge(from, x, c_->edge_label[e]);
        }
        return sum;
    }

    struct Seed {
        int32_t alike, apart;
        int16_t x, y;
        bool operator<(const Seed &other) const {
            return std::tuple(-alike, apart, x, y) < std::tuple(-other.alike, other.apart, other.x, other.y);
        }
    };

    // Begin anew: first those pairs whose surroundings are most alike, and of these the ones as far from the
    // beginning, or from the end.
    void seed() {
        clear();
        std::vector<int32_t> alike = worth_, next(alike.size());
        std::vector<std::vector<int32_t>> in[2], out[2];
        std::vector<int32_t> before[2], behind[2];
        for (int side = 0; side < 2; ++side) {
            const Form &form = side ? *c_ : *p_;
            in[side].resize(form.elements), out[side].resize(form.elements);
            before[side].assign(form.elements, 0), behind[side].assign(form.elements, 0);
            for (size_t x = 0; x < form.elements; ++x)
                for (size_t e = form.edge_offset[x]; e < form.edge_offset[x + 1]; ++e) {
                    const size_t from = form.edge[e];
                    in[side][x].push_back(int32_t(from)), out[side][from].push_back(int32_t(x));
                    before[side][x] = std::max(before[side][x], before[side][from] + 1);
                }
            for (size_t x = form.elements; x-- > 0;)
                for (const int32_t from : in[side][x])
                    behind[side][size_t(from)] = std::max(behind[side][size_t(from)], behind[side][x] + 1);
        }
        for (int round = 0; round < SPREAD; ++round) {
            auto around = [&](const std::vector<int32_t> &ours, const std::vector<int32_t> &theirs) {
                int64_t sum = 0;
                for (const int32_t b : theirs) {
                    int32_t most = 0;
                    for (const int32_t a : ours) most = std::max(most, alike[at(a, b)]);
                    sum += most;
                }
                return sum / int64_t(std::max({ours.size(), theirs.size(), size_t(1)}));
            };
            for (int32_t x = 0; x < n_; ++x)
                for (int32_t y = 0; y < m_; ++y)
                    if (worth_[at(x, y)] > 0)
                        next[at(x, y)] = worth_[at(x, y)] + int32_t((around(in[0][size_t(x)], in[1][size_t(y)]) +
                                                                     around(out[0][size_t(x)], out[1][size_t(y)])) /
                                                                    4);
            alike.swap(next);
        }
        std::vector<Seed> seeds;
        for (int32_t x = 0; x < n_; ++x)
            for (int32_t y = 0; y < m_; ++y)
                if (worth_[at(x, y)] > 0)
                    seeds.push_back({alike[at(x, y)],
                                     std::min(std::abs(before[0][size_t(x)] - before[1][size_t(y)]),
                                              std::abs(behind[0][size_t(x)] - behind[1][size_t(y)])),
                                     int16_t(x), int16_t(y)});
        std::sort(seeds.begin(), seeds.end());
        for (const Seed &seed : seeds)
            if (back_[size_t(seed.x)] < 0 && image_[size_t(seed.y)] < 0 && conflicts(seed.x, seed.y) == 0)
                set(seed.x, seed.y);
    }

    // For each element: which come before it (1), which behind it (2)?
    static void relate(const Form &form, std::vector<uint8_t> &relation) {
        const size_t n = form.elements;
        relation.assign(n * n, 0);
        for (size_t x = 0; x < n; ++x)
            for (size_t e = form.edge_offset[x]; e < form.edge_offset[x + 1]; ++e) {
                const size_t from = form.edge[e];
                relation[x * n + from] = 1;
                for (size_t z = 0; z < n; ++z) relation[x * n + z] |= relation[from * n + z];
            }
        for (size_t x = 0; x < n; ++x)
            for (size_t z = 0; z < n; ++z)
                if (relation[x * n + z] == 1) relation[z * n + x] = 2;
    }

    void readers() {  // edges out of each element of the child
        out_offset_.assign(size_t(m_) + 1, 0);
        for (size_t e = 0; e < c_->edges; ++e) ++out_offset_[size_t(c_->edge[e]) + 1];
        for (size_t y = 0; y < size_t(m_); ++y) out_offset_[y + 1] += out_offset_[y];
        out_.resize(c_->edges);
        std::vector<int32_t> next(out_offset_.begin(), out_offset_.end() - 1);
        for (int32_t y = 0; y < m_; ++y)
            for (int32_t e = c_->edge_offset[y]; e < c_->edge_offset[y + 1]; ++e)
                out_[size_t(next[c_->edge[e]]++)] = {y, c_->edge_label[e]};
    }

    void set(int32_t x, int32_t y) {
        image_[size_t(y)] = int16_t(x), back_[size_t(x)] = int16_t(y), used_[size_t(y)] = 1;
        for (int32_t z = 0; z < n_; ++z) seen_[at(z, y)] = ours_[size_t(z) * size_t(n_) + size_t(x)];
    }
    void unset(int32_t y) { back_[size_t(image_[size_t(y)])] = -1, image_[size_t(y)] = -1, used_[size_t(y)] = 0; }

    // The worth of the edges between two pairs, the first feeding the second.
    int32_t edge(int32_t x, int32_t to, uint16_t label) const {
        const uint16_t *const in = p_->edge + p_->edge_offset[to], *const end = p_->edge + p_->edge_offset[to + 1];
        const uint16_t *const found = std::lower_bound(in, end, uint16_t(x));
        if (found == end || *found != x) return 0;
        return int32_t(p_->edge_label[found - p_->edge] == label ? knobs_->edge : knobs_->other_label);
    }

    // What y earns with x: the match, and edges from and to what is matched.
    int32_t earns(int32_t x, int32_t y) const {
        int32_t sum = worth_[at(x, y)];
        for (int32_t e = c_->edge_offset[y]; e < c_->edge_offset[y + 1]; ++e)
            if (const int32_t from = image_[c_->edge[e]]; from >= 0) sum += edge(from, x, c_->edge_label[e]);
        for (int32_t e = out_offset_[size_t(y)]; e < out_offset_[size_t(y) + 1]; ++e)
            if (const int32_t to = image_[size_t(out_[size_t(e)].first)]; to >= 0)
                sum += edge(x, to, out_[size_t(e)].second);
        return sum;
    }

    int32_t degree(int32_t y) const {
        return c_->edge_offset[y + 1] - c_->edge_offset[y] + out_offset_[size_t(y) + 1] - out_offset_[size_t(y)];
    }

    int32_t conflicts(int32_t x, int32_t y) {
        work_ += m_ / 8 + 8;
        return differing(seen_.data() + at(x, 0), theirs_.data() + size_t(y) * size_t(m_), used_.data(), m_);
    }

    int32_t remove(int32_t y) {  // returns what it had earned
        const int32_t x = image_[size_t(y)], sum = earns(x, y);
        removed_.push_back({x, y});
        unset(y);
        return sum;
    }

    // Match x and y, whatever has to go, and match anew what went. Is that better?
    bool attempt(int32_t x, int32_t y) {
        const int32_t odds = conflicts(x, y);
        if (odds > REPAIRED) return false;
        removed_.clear(), added_.clear();
        int32_t change = 0;
        if (image_[size_t(y)] >= 0) change -= remove(y);
        if (back_[size_t(x)] >= 0) change -= remove(back_[size_t(x)]);
        if (odds > 0)
            for (int32_t z = 0; z < m_; ++z)
                if (used_[size_t(z)] && seen_[at(x, z)] != theirs_[size_t(y) * size_t(m_) + size_t(z)])
                    change -= remove(z);
        change += earns(x, y);
        set(x, y), added_.push_back({x, y});
        while (!removed_.empty()) {
            int32_t most = 0, best_x = -1, best_y = -1;
            auto look = [&](int32_t a, int32_t b) {
                if (a < 0 || b < 0 || worth_[at(a, b)] == 0 || back_[size_t(a)] >= 0 || image_[size_t(b)] >= 0) return;
                const int32_t sum = earns(a, b);
                if (sum > most && conflicts(a, b) == 0) most = sum, best_x = a, best_y = b;
            };
            work_ += int64_t(removed_.size()) * (n_ + m_) * 2;
            for (const auto &[a, b] : removed_) {
                for (int32_t z = 0; z < m_; ++z) look(a, z);
                for (int32_t z = 0; z < n_; ++z) look(z, b);
            }
            if (best_x < 0) break;
            change += most;
            set(best_x, best_y), added_.push_back({best_x, best_y});
        }
        if (change > 0) return true;
        for (const auto &[a, b] : added_) unset(b);
        for (const auto &[a, b] : removed_) set(a, b);
        return false;
    }

    const Form *p_ = nullptr, *c_ = nullptr;
    const Knobs *knobs_ = nullptr;
    int32_t n_ = 0, m_ = 0;
    int64_t work_ = 0;
    std::vector<int32_t> worth_;
    std::vector<uint8_t> ours_, theirs_;  // relations of elements
    std::vector<uint8_t> seen_;           // of each parent's element: its relation to the partner of each child's
    std::vector<uint8_t> used_;           // has this element of the child a partner?
    std::vector<int16_t> image_, back_;
    std::vector<int32_t> out_offset_;
    std::vector<std::pair<int32_t, uint16_t>> out_;
    std::vector<std::pair<int32_t, int32_t>> removed_, added_;
};

}  // namespace modelkeeper
