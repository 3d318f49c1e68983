// Which elements that a path left over still belong together?
//
// Those that lie between the same matched elements on both sides: two such matches can never cross. That matters
// in graphs that no regions describe (NAS cells), where a path alone must leave out whole branches.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "colours.hpp"
#include "pair.hpp"

namespace modelkeeper {

class Gaps {
  public:
    static constexpr int ROUNDS = 3;

    explicit Gaps(Pair &pair) : pair_(pair) {}

    // Add matches inside gaps, and inside the smaller gaps that these leave.
    void close_all() {
        for (int round = 0; round < ROUNDS && close_round(); ++round) {}
    }

  private:
    // An element without a partner, and where it lies.
    struct Loose {
        uint64_t between;  // a hash of the matches before and behind it
        uint16_t element;
        bool operator<(const Loose &other) const {
            return std::pair(between, element) < std::pair(other.between, other.element);
        }
    };

    // Were there any matches to be added?
    bool close_round() {
        const size_t known = pair_.matches.size();
        if (known == pair_.parent.elements || known == pair_.child.elements || pair_.cells > Pair::MAX_CELLS)
            return false;
        const Arena::Mark mark = pair_.arena.mark();
        if (any_left()) {
            find_loose(pair_.parent, true, parent_loose_);
            find_loose(pair_.child, false, child_loose_);
            close_equal();
        }
        pair_.arena.release(mark);
        return pair_.matches.size() > known;
    }

    // Could any two elements without a partner be matched?
    bool any_left() const {
        const Form &parent = pair_.parent;
        const size_t n = parent.elements, m = pair_.child.elements;
        int32_t *const free = pair_.filled(m, 1), *const used = pair_.filled(n, 0);
        int32_t *const spare = pair_.filled(parent.tokens, 0);
        for (const auto &[x, y] : pair_.matches) used[x] = 1, free[y] = 0;
        for (size_t x = 0; x < n; ++x)
            if (!used[x] && parent.token[x] != NONE) spare[parent.token[x]] = pair_.token_useful(parent.token[x]);
        for (size_t t = 0; t < parent.tokens; ++t) {
            if (!spare[t]) continue;
            const int32_t *const gain = pair_.token_gains(t);
            for (size_t y = 0; y < m; ++y)
                if (free[y] && gain[y] > 0) return true;
        }
        return false;
    }

    // The elements of one side without a partner that could have one, those in one gap side by side.
    void find_loose(const Form &form, bool of_parent, std::vector<Loose> &loose) const {
        loose.clear();
        const Matches &matches = pair_.matches;
        const size_t n = form.elements, words = (matches.size() + 63) / 64;
        int32_t *const partner = pair_.filled(n, -1);  // the number of the match that an element is part of
        for (size_t k = 0; k < matches.size(); ++k)
            partner[of_parent ? matches[k].first : matches[k].second] = int32_t(k);
        // For each element, the matches before and those behind it: one bit each.
        uint64_t *const before = pair_.arena.take<uint64_t>(n * words);
        uint64_t *const behind = pair_.arena.take<uint64_t>(n * words);
        std::fill_n(before, n * words, 0), std::fill_n(behind, n * words, 0);
        auto join = [&](uint64_t *into, const uint64_t *from, size_t element) {
            for (size_t w = 0; w < words; ++w) into[w] |= from[w];
            if (partner[element] >= 0) into[size_t(partner[element]) / 64] |= uint64_t(1) << (partner[element] % 64);
        };
        for (size_t x = 0; x < n; ++x)
            for (size_t e = form.edge_offset[x]; e < form.edge_offset[x + 1]; ++e)
                join(before + x * words, before + form.edge[e] * words, form.edge[e]);
        for (size_t x = n; x-- > 0;)
            for (size_t e = form.edge_offset[x]; e < form.edge_offset[x + 1]; ++e)
                join(behind + form.edge[e] * words, behind + x * words, x);
        for (size_t x = 0; x < n; ++x) {
            if (partner[x] >= 0 || form.token[x] == NONE) continue;
            uint64_t hash = 0;
            for (size_t w = 0; w < words; ++w) hash = mix(hash, before[x * words + w]);
            for (size_t w = 0; w < words; ++w) hash = mix(hash, behind[x * words + w]);
            loose.push_back({hash, uint16_t(x)});
        }
        std::sort(loose.begin(), loose.end());
    }

    // Close each gap that both sides have.
    void close_equal() {
        const auto end_of_gap = [](const std::vector<Loose> &loose, size_t begin) {
            size_t end = begin;
            while (end < loose.size() && loose[end].between == loose[begin].between) ++end;
            return end;
        };
        for (size_t i = 0, j = 0; i < parent_loose_.size() && j < child_loose_.size();) {
            if (parent_loose_[i].between != child_loose_[j].between) {
                parent_loose_[i].between < child_loose_[j].between ? ++i : ++j;
                continue;
            }
            const size_t next_i = end_of_gap(parent_loose_, i), next_j = end_of_gap(child_loose_, j);
            close(parent_loose_.data() + i, int32_t(next_i - i), child_loose_.data() + j, int32_t(next_j - j));
            i = next_i, j = next_j;
        }
    }

    // Match the elements of one gap in their order, for the largest sum.
    void close(const Loose *xs, int32_t n, const Loose *ys, int32_t m) {
        pair_.cells += int64_t(n) * m;
        const Arena::Mark mark = pair_.arena.mark();
        const Table best{pair_.filled(size_t(n + 1) * size_t(m + 1), 0), m + 1};
        for (int32_t i = 1; i <= n; ++i)
            for (int32_t j = 1; j <= m; ++j)
                best.row(i)[j] =
                    std::max({best.at(i - 1, j), best.at(i, j - 1),
                              best.at(i - 1, j - 1) + pair_.worth(xs[i - 1].element, ys[j - 1].element)});
        for (int32_t i = n, j = m; i > 0 && j > 0;) {
            if (best.at(i - 1, j) == best.at(i, j))
                --i;
            else if (best.at(i, j - 1) == best.at(i, j))
                --j;
            else
                pair_.matches.push_back({xs[--i].element, ys[--j].element});
        }
        pair_.arena.release(mark);
    }

    Pair &pair_;
    std::vector<Loose> parent_loose_, child_loose_;
};

}  // namespace modelkeeper
