// Which elements of a parent lend to which elements of a child?
//
// The best value over paths through both forms: to reach (x, y), skip a parent's element, skip a
// child's, or match both; and where both close a region, jump: match the closers and assign branches
// to branches, each pair of branches aligned in its own right. A path may also run through one branch
// of a region, so that a plain network can match the trunk of one with shortcuts. What the paths left
// over is then filled in where it lies between the same matched elements on both sides: that matters
// in graphs that no regions describe (NAS cells), where a path alone must leave out whole branches.
//
// Values of branch pairs are remembered by class; scratch memory is kept between pairs, none is
// allocated per cell.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "assignment.hpp"
#include "colours.hpp"
#include "form.hpp"
#include "tokens.hpp"

namespace modelkeeper {

MODELKEEPER_WIDE inline void largest(int32_t *__restrict into, const int32_t *__restrict other, int32_t n) {
    for (int32_t j = 0; j < n; ++j) into[j] = into[j] > other[j] ? into[j] : other[j];
}

MODELKEEPER_WIDE inline void skip_or_match(int32_t *__restrict here, const int32_t *__restrict best,
                                           const int32_t *__restrict gain, int32_t n) {
    for (int32_t j = 1; j < n; ++j) {
        const int32_t match = best[j - 1] + gain[j];
        here[j] = best[j] > match ? best[j] : match;
    }
}

struct Score {
    int64_t layers = 0;  // the rewards of all matched elements
    int64_t edges = 0;   // the worth of all edges whose image is an edge
};

class Aligner {
  public:
    // What one pair may cost, beyond which regions are no longer matched branch by branch: some 2 s.
    static constexpr int64_t MAX_CELLS = int64_t(1) << 28;
    static constexpr int64_t MAX_ASSIGNMENT = int64_t(1) << 22;
    static constexpr int ROUNDS = 3;
    static constexpr size_t KEPT = size_t(16) << 20;  // bytes of scratch memory kept between pairs

    std::vector<std::pair<uint16_t, uint16_t>> pairs;  // of the last alignment, in no order

    // rows[t]: the rewards of the parent's local token t against each local token of the child.
    Score align(const Form &parent, const Form &child, const int32_t *const *rows, const Knobs &knobs) {
        p_ = &parent, c_ = &child, knobs_ = knobs;
        arena_.reset(KEPT);
        pairs.clear();
        cells_ = 0;
        if (parent.elements == 0 || child.elements == 0) return {};
        // Rewards by element of the child, once for each token of the parent; the last row is of zeros.
        gains_ = filled(size_t(parent.tokens + 1) * child.elements, 0);
        for (size_t t = 0; t < parent.tokens; ++t)
            for (size_t y = 0; y < child.elements; ++y)
                if (child.token[y] != NONE) gains_[t * child.elements + y] = rows[t][child.token[y]];
        branch_memo_ = filled(size_t(parent.branch_classes) * child.branch_classes, -1);
        region_memo_ = filled(size_t(parent.region_classes) * child.region_classes, -1);
        trace(0, parent.elements - 1, 0, child.elements - 1);
        for (int round = 0; round < ROUNDS && complete(); ++round) {}
        return count();
    }

  private:
    struct Table {
        const int32_t *cells;
        int32_t width;
        int32_t at(int32_t i, int32_t j) const { return cells[size_t(i) * size_t(width) + size_t(j)]; }
    };

    int32_t *filled(size_t count, int32_t value) {
        int32_t *made = arena_.take<int32_t>(count);
        std::fill_n(made, count, value);
        return made;
    }

    // An element as a row of a table that begins at `low`: row 0 is "before".
    static int32_t row(uint16_t element, int32_t low) {
        return element == NONE || element < low ? 0 : int32_t(element) - low + 1;
    }

    const int32_t *gains(int32_t x) const {
        return gains_ + size_t(p_->token[x] == NONE ? p_->tokens : p_->token[x]) * c_->elements;
    }
    int32_t worth(int32_t x, int32_t y) const { return gains(x)[y]; }

    // A column of a table whose element does not simply follow the one before.
    struct Joint {
        int32_t column;
        int32_t before, follows;  // the column before it and -1, if that is a predecessor; else `from` and 0
        int32_t from;             // another predecessor ...
        int32_t first, last;      // ... and further ones: columns `joined[first .. last]`
    };

    // The best values for all elements of the parent's run a..b against the child's run c..d.
    Table fill(int32_t a, int32_t b, int32_t c, int32_t d) {
        const Form &p = *p_, &q = *c_;
        const int32_t n = b - a + 1, m = d - c + 1, width = m + 1;
        cells_ += int64_t(n) * m;
        int32_t *const cells = arena_.take<int32_t>(size_t(n + 1) * size_t(width));
        const Arena::Mark mark = arena_.mark();
        int32_t *const over = arena_.take<int32_t>(size_t(width));
        int32_t *const closers = arena_.take<int32_t>(size_t(m)), *const forks = arena_.take<int32_t>(size_t(m));
        int32_t *const joined = arena_.take<int32_t>(size_t(q.step_offset[d + 1] - q.step_offset[c]));
        Joint *const joints = arena_.take<Joint>(size_t(m));
        int32_t joint_count = 0, closer_count = 0, joined_count = 0;
        for (int32_t j = 1; j <= m; ++j) {
            const int32_t y = c + j - 1;
            Joint joint{j, -1, 0, -1, joined_count, joined_count};
            for (int32_t e = q.step_offset[y]; e < q.step_offset[y + 1]; ++e) {
                const int32_t from = row(q.step[e], c);
                if (from == j - 1)
                    joint.before = from, joint.follows = -1;
                else if (joint.from < 0)
                    joint.from = from;
                else
                    joined[joined_count++] = from;
            }
            joint.last = joined_count;
            if (joint.before < 0) joint.before = joint.from;
            if (joint.from >= 0) joints[joint_count++] = joint;
            if (q.region[y] != NONE) forks[closer_count] = row(q.fork[q.region[y]], c), closers[closer_count++] = j;
        }
        std::fill_n(cells, width, 0);
        for (int32_t i = 1; i <= n; ++i) {
            const int32_t x = a + i - 1;
            int32_t *const here = cells + size_t(i) * size_t(width);
            const uint16_t *step = p.step + p.step_offset[x], *const last = p.step + p.step_offset[x + 1];
            const int32_t *best = cells + size_t(row(*step, a)) * size_t(width);
            if (last - step > 1) {  // the best over all predecessors of x
                std::copy_n(best, width, over);
                while (++step < last) largest(over, cells + size_t(row(*step, a)) * size_t(width), width);
                best = over;
            }
            const int32_t *const gain = gains(x) + c - 1;  // of column j
            here[0] = 0;
            skip_or_match(here, best, gain, width);
            for (int32_t k = 0; k < joint_count; ++k) {
                const Joint &joint = joints[k];
                int32_t from = std::max(best[joint.before], best[joint.from]);
                for (int32_t e = joint.first; e < joint.last; ++e) from = std::max(from, best[joined[e]]);
                here[joint.column] = std::max(best[joint.column], from + gain[joint.column]);
            }
            if (p.region[x] != NONE) {
                const int32_t *const fork = cells + size_t(row(p.fork[p.region[x]], a)) * size_t(width);
                const int32_t *const memo = region_memo_ + size_t(p.region_class[p.region[x]]) * c_->region_classes;
                for (int32_t k = 0; k < closer_count; ++k) {
                    const int32_t j = closers[k], region = q.region[c + j - 1];
                    int32_t value = memo[q.region_class[region]];
                    if (value < 0) value = jump(p.region[x], region);
                    here[j] = std::max(here[j], fork[forks[k]] + gain[j] + value);
                }
            }
            int32_t value = 0, j = 1;  // skip the child's element
            for (int32_t k = 0; k < joint_count; ++k) {
                const Joint &joint = joints[k];
                for (; j < joint.column; ++j) here[j] = value = std::max(value, here[j]);
                value =
                    std::max({here[j], value & joint.follows, here[joint.from]});  // no load of what was just stored
                for (int32_t e = joint.first; e < joint.last; ++e) value = std::max(value, here[joined[e]]);
                here[j++] = value;
            }
            for (; j <= m; ++j) here[j] = value = std::max(value, here[j]);
        }
        arena_.release(mark);
        return {cells, width};
    }

    int32_t branch(int32_t a, int32_t b) {
        int32_t &memo = branch_memo_[size_t(p_->branch_class[a]) * c_->branch_classes + c_->branch_class[b]];
        if (memo >= 0) return memo;
        const bool bare = p_->low[a] > p_->high[a], other_bare = c_->low[b] > c_->high[b];
        int32_t value = 0;
        if ((p_->branch_label[a] == ASIDE) != (c_->branch_label[b] == ASIDE)) return memo = 0;
        if (bare || other_bare) {
            value = bare && other_bare ? int32_t(knobs_.edge) : 0;
        } else if (cells_ <= MAX_CELLS) {
            const Arena::Mark mark = arena_.mark();
            const Table table = fill(p_->low[a], p_->high[a], c_->low[b], c_->high[b]);
            value = table.at(p_->high[a] - p_->low[a] + 1, c_->high[b] - c_->low[b] + 1);
            arena_.release(mark);
        }
        // Which operand of the closer a branch feeds is worth something: queries go to queries.
        if (value > 0 && p_->branch_label[a] == c_->branch_label[b]) value += int32_t(knobs_.edge);
        return memo = value;
    }

    int32_t jump(int32_t a, int32_t b) {
        int32_t &memo = region_memo_[size_t(p_->region_class[a]) * c_->region_classes + c_->region_class[b]];
        if (memo < 0) memo = assign(a, b);
        return memo;
    }

    // Assign branches to branches for the largest sum; `partner_[i]` is then the i-th branch's, or -1.
    int32_t assign(int32_t a, int32_t b) {
        const int32_t first = p_->branch_offset[a], n = p_->branch_offset[a + 1] - first;
        const int32_t other = c_->branch_offset[b], m = c_->branch_offset[b + 1] - other;
        const Arena::Mark mark = arena_.mark();
        int32_t *const values = arena_.take<int32_t>(size_t(n) * size_t(m));
        for (int32_t i = 0; i < n; ++i)
            for (int32_t j = 0; j < m; ++j) values[size_t(i) * size_t(m) + size_t(j)] = branch(first + i, other + j);
        const int64_t work = int64_t(std::min(n, m)) * std::min(n, m) * std::max(n, m);
        if (cells_ > MAX_CELLS || work > MAX_ASSIGNMENT)
            assign_in_order(values, n, m, partner_);
        else
            assign_best(values, n, m, partner_, arena_);
        cells_ += work <= MAX_ASSIGNMENT ? work : int64_t(n) * m;
        int32_t sum = 0;
        for (int32_t i = 0; i < n; ++i)
            if (partner_[size_t(i)] >= 0) sum += values[size_t(i) * size_t(m) + size_t(partner_[size_t(i)])];
        arena_.release(mark);
        return sum;
    }

    // Walk back through the best values. Ties: skip the parent's, skip the child's, jump, match; so
    // that of equal elements the earliest are matched.
    void trace(int32_t a, int32_t b, int32_t c, int32_t d) {
        const Arena::Mark mark = arena_.mark();
        const Table best = fill(a, b, c, d);
        const Form &p = *p_, &q = *c_;
        int32_t i = b - a + 1, j = d - c + 1;
        while (i > 0 && j > 0 && best.at(i, j) > 0) {
            const int32_t x = a + i - 1, y = c + j - 1, value = best.at(i, j);
            const uint16_t *const steps = p.step + p.step_offset[x], *const steps_end = p.step + p.step_offset[x + 1];
            const uint16_t *const moves = q.step + q.step_offset[y], *const moves_end = q.step + q.step_offset[y + 1];
            auto skip = std::find_if(steps, steps_end, [&](uint16_t s) { return best.at(row(s, a), j) == value; });
            if (skip != steps_end) {
                i = row(*skip, a);
                continue;
            }
            skip = std::find_if(moves, moves_end, [&](uint16_t s) { return best.at(i, row(s, c)) == value; });
            if (skip != moves_end) {
                j = row(*skip, c);
                continue;
            }
            const int32_t gain = worth(x, y);
            if (gain > 0) pairs.push_back({uint16_t(x), uint16_t(y)});
            const uint16_t r = p.region[x], s = q.region[y];
            if (r != NONE && s != NONE) {
                const int32_t fork = row(p.fork[r], a), other = row(q.fork[s], c);
                if (best.at(fork, other) + gain + jump(r, s) == value) {
                    assign(r, s);
                    const std::vector<int32_t> partner = partner_;
                    for (size_t k = 0; k < partner.size(); ++k) {
                        if (partner[k] < 0) continue;
                        const int32_t from = p.branch_offset[r] + int32_t(k), to = q.branch_offset[s] + partner[k];
                        if (p.low[from] <= p.high[from] && q.low[to] <= q.high[to])
                            trace(p.low[from], p.high[from], q.low[to], q.high[to]);
                    }
                    i = fork, j = other;
                    continue;
                }
            }
            const auto [up, left] = match(best, steps, steps_end, moves, moves_end, a, c, value - gain);
            i = up, j = left;
        }
        arena_.release(mark);
    }

    static std::pair<int32_t, int32_t> match(const Table &best, const uint16_t *steps, const uint16_t *steps_end,
                                             const uint16_t *moves, const uint16_t *moves_end, int32_t a, int32_t c,
                                             int32_t value) {
        for (const uint16_t *s = steps; s < steps_end; ++s)
            for (const uint16_t *t = moves; t < moves_end; ++t)
                if (best.at(row(*s, a), row(*t, c)) == value) return {row(*s, a), row(*t, c)};
        return {0, 0};
    }

    struct Gap {
        uint64_t between;  // a hash of the pairs before and behind an element
        uint16_t element;
        bool operator<(const Gap &other) const {
            return std::pair(between, element) < std::pair(other.between, other.element);
        }
    };

    // The elements without a partner that could have one, with the pairs they lie between.
    void gaps(const Form &form, bool parent, std::vector<Gap> &found) {
        found.clear();
        const size_t n = form.elements, words = (pairs.size() + 63) / 64;
        int32_t *const partner = filled(n, -1);
        for (size_t k = 0; k < pairs.size(); ++k) partner[parent ? pairs[k].first : pairs[k].second] = int32_t(k);
        uint64_t *const before = arena_.take<uint64_t>(n * words), *const behind = arena_.take<uint64_t>(n * words);
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
            found.push_back({hash, uint16_t(x)});
        }
        std::sort(found.begin(), found.end());
    }

    // Match elements that lie between the same pairs: two such matches can never cross. Were there any?
    bool complete() {
        if (pairs.size() == p_->elements || pairs.size() == c_->elements || cells_ > MAX_CELLS) return false;
        const Arena::Mark mark = arena_.mark();
        gaps(*p_, true, left_);
        gaps(*c_, false, right_);
        const size_t known = pairs.size();
        for (size_t i = 0, j = 0; i < left_.size() && j < right_.size();) {
            if (left_[i].between != right_[j].between) {
                left_[i].between < right_[j].between ? ++i : ++j;
                continue;
            }
            const uint64_t between = left_[i].between;
            size_t k = i, l = j;
            while (k < left_.size() && left_[k].between == between) ++k;
            while (l < right_.size() && right_[l].between == between) ++l;
            chain(left_.data() + i, int32_t(k - i), right_.data() + j, int32_t(l - j));
            i = k, j = l;
        }
        arena_.release(mark);
        return pairs.size() > known;
    }

    void chain(const Gap *xs, int32_t n, const Gap *ys, int32_t m) {
        cells_ += int64_t(n) * m;
        const Arena::Mark mark = arena_.mark();
        const int32_t width = m + 1;
        int32_t *const cells = filled(size_t(n + 1) * size_t(width), 0);
        const Table best{cells, width};
        for (int32_t i = 1; i <= n; ++i)
            for (int32_t j = 1; j <= m; ++j)
                cells[size_t(i) * size_t(width) + size_t(j)] =
                    std::max({best.at(i - 1, j), best.at(i, j - 1),
                              best.at(i - 1, j - 1) + worth(xs[i - 1].element, ys[j - 1].element)});
        for (int32_t i = n, j = m; i > 0 && j > 0;) {
            if (best.at(i - 1, j) == best.at(i, j))
                --i;
            else if (best.at(i, j - 1) == best.at(i, j))
                --j;
            else
                pairs.push_back({xs[--i].element, ys[--j].element});
        }
        arena_.release(mark);
    }

    Score count() {
        Score score;
        uint16_t *const image = arena_.take<uint16_t>(c_->elements);
        std::fill_n(image, c_->elements, NONE);
        for (const auto &[x, y] : pairs) image[y] = x;
        for (const auto &[x, y] : pairs) {
            score.layers += worth(x, y);
            const uint16_t *const in = p_->edge + p_->edge_offset[x], *const end = p_->edge + p_->edge_offset[x + 1];
            for (int32_t e = c_->edge_offset[y]; e < c_->edge_offset[y + 1]; ++e) {
                const uint16_t source = image[c_->edge[e]];
                if (source == NONE) continue;
                const uint16_t *const at = std::lower_bound(in, end, source);
                if (at == end || *at != source) continue;
                score.edges += p_->edge_label[at - p_->edge] == c_->edge_label[e] ? knobs_.edge : knobs_.other_label;
            }
        }
        return score;
    }

    const Form *p_ = nullptr, *c_ = nullptr;
    Knobs knobs_{};
    Arena arena_;
    int32_t *gains_ = nullptr, *branch_memo_ = nullptr, *region_memo_ = nullptr;
    std::vector<int32_t> partner_;
    std::vector<Gap> left_, right_;
    int64_t cells_ = 0;
};

}  // namespace modelkeeper
