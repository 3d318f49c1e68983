// Which elements of a parent lend to which elements of a child?
//
// The best value over paths through both forms: to reach (x, y), skip a parent's element, skip a
// child's, or match both; and where both close a region, jump: match the closers and assign branches
// to branches, each pair of branches aligned in its own right. A path may also run through one branch
// of a region, so that a plain network can match the trunk of one with shortcuts. What the paths left
// over is then filled in where it lies between the same matched elements on both sides: that matters
// in graphs that no regions describe (NAS cells), where a path alone must leave out whole branches. Such
// graphs are then improved upon pair by pair (improve.hpp).
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
#include "improve.hpp"
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

MODELKEEPER_WIDE inline void pick(int32_t *__restrict into, const int32_t *__restrict from,
                                  const int32_t *__restrict number, int32_t n) {
    for (int32_t j = 0; j < n; ++j) into[j] = from[number[j]];
}

// Each becomes the largest of `value` and all up to it; returns the last.
MODELKEEPER_WIDE inline int32_t running_largest(int32_t *values, int32_t n, int32_t value) {
    int32_t j = 0;
#if defined(__GNUC__) && !defined(__clang__)
    typedef int32_t Lanes __attribute__((vector_size(32)));
    if (n >= 8) {
        Lanes known = value - Lanes{};
        for (; j + 8 <= n; j += 8) {
            Lanes now, other;
            std::memcpy(&now, values + j, sizeof now);
            other = __builtin_shuffle(now, Lanes{0, 0, 1, 2, 3, 4, 5, 6}), now = now > other ? now : other;
            other = __builtin_shuffle(now, Lanes{0, 1, 0, 1, 2, 3, 4, 5}), now = now > other ? now : other;
            other = __builtin_shuffle(now, Lanes{0, 1, 2, 3, 0, 1, 2, 3}), now = now > other ? now : other;
            const Lanes last = __builtin_shuffle(now, Lanes{7, 7, 7, 7, 7, 7, 7, 7});
            now = now > known ? now : known;
            known = known > last ? known : last;
            std::memcpy(values + j, &now, sizeof now);
        }
        value = known[0];
    }
#endif
    for (; j < n; ++j) values[j] = value = value > values[j] ? value : values[j];
    return value;
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
    static constexpr int32_t SHORT = 8;  // elements of a chain that is matched without a table
    static constexpr size_t KEPT = size_t(16) << 20;  // bytes of scratch memory kept between pairs

    std::vector<std::pair<uint16_t, uint16_t>> pairs;  // of the last alignment, in no order

    // rows[t]: the rewards of the parent's local token t against each local token of the child.
    Score align(const Form &parent, const Form &child, const int32_t *const *rows, const Knobs &knobs) {
        p_ = &parent, c_ = &child, knobs_ = knobs;
        arena_.reset(KEPT);
        pairs.clear();
        cells_ = 0;
        if (parent.elements == 0 || child.elements == 0) return {};
        // Rewards by element of the child, once for each token of the parent; the last row is of zeros. What no
        // token matches at all is left out.
        gains_ = filled(size_t(parent.tokens + 1) * child.elements, 0);
        useful_.assign(size_t(parent.tokens) + 1, 0);
        int32_t *const number = arena_.take<int32_t>(child.elements), *const reward = filled(child.tokens + 1, 0);
        for (size_t y = 0; y < child.elements; ++y) number[y] = std::min(child.token[y], child.tokens);
        for (size_t t = 0; t < parent.tokens; ++t) {
            useful_[t] = std::any_of(rows[t], rows[t] + child.tokens, [](int32_t gain) { return gain > 0; });
            if (!useful_[t]) continue;
            std::copy_n(rows[t], child.tokens, reward);
            pick(gains_ + t * child.elements, reward, number, child.elements);
        }
        branch_memo_ = filled(size_t(parent.branch_classes) * child.branch_classes, -1);
        region_memo_ = filled(size_t(parent.region_classes) * child.region_classes, -1);
        survey();
        trace(0, parent.elements - 1, 0, child.elements - 1);
        for (int round = 0; round < ROUNDS && complete(); ++round) {}
        if (Improver::applies(parent, child, arena_))
            improver_.improve(parent, child, knobs, [this](int32_t x, int32_t y) { return worth(x, y); }, pairs);
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

    // A column of a table whose element does not simply follow the one before: its predecessors are the
    // columns `joined[first .. last]`.
    struct Joint {
        int32_t column, first, last;
    };
    // A column whose element closes a region.
    struct Closer {
        int32_t column, fork, region, kind;
    };

    // Is a step from a region's fork straight to its closer? Whatever is reached at the fork is reached at the
    // end of any branch, so beside another step this one leads to no larger value.
    static bool idle(const Form &form, int32_t element, uint16_t step) {
        const uint16_t region = form.region[element];
        return region != NONE && form.fork[region] == step &&
               form.step_offset[element + 1] - form.step_offset[element] > 1;
    }

    // Which elements of the child are joints, and which close regions?
    void survey() {
        const Form &q = *c_;
        const size_t n = q.elements;
        joints_ = arena_.take<int32_t>(n), closers_ = arena_.take<int32_t>(n);
        joints_before_ = filled(n + 1, 0), closers_before_ = filled(n + 1, 0);
        int32_t joints = 0, closers = 0;
        for (int32_t y = 0; y < int32_t(n); ++y) {
            bool follows = true;
            for (int32_t e = q.step_offset[y]; e < q.step_offset[y + 1]; ++e)
                follows &= row(q.step[e], 0) == y || idle(q, y, q.step[e]);
            if (!follows) joints_[joints++] = y;
            if (q.region[y] != NONE) closers_[closers++] = y;
            joints_before_[y + 1] = joints, closers_before_[y + 1] = closers;
        }
    }

    // The best values for all elements of the parent's run a..b against the child's run c..d.
    Table fill(int32_t a, int32_t b, int32_t c, int32_t d) {
        const Form &p = *p_, &q = *c_;
        const int32_t n = b - a + 1, m = d - c + 1, width = m + 1;
        cells_ += int64_t(n) * m;
        int32_t *const cells = arena_.take<int32_t>(size_t(n + 1) * size_t(width));
        const Arena::Mark mark = arena_.mark();
        int32_t *const over = arena_.take<int32_t>(size_t(width));
        int32_t *const joined = arena_.take<int32_t>(size_t(q.step_offset[d + 1] - q.step_offset[c]));
        Closer *const closers = arena_.take<Closer>(size_t(closers_before_[d + 1] - closers_before_[c]));
        Joint *const joints = arena_.take<Joint>(size_t(joints_before_[d + 1] - joints_before_[c]));
        int32_t joint_count = 0, closer_count = 0, joined_count = 0;
        for (int32_t k = joints_before_[c]; k < joints_before_[d + 1]; ++k) {
            const int32_t y = joints_[k], first = joined_count;
            for (int32_t e = q.step_offset[y]; e < q.step_offset[y + 1]; ++e)
                if (!idle(q, y, q.step[e])) joined[joined_count++] = row(q.step[e], c);
            joints[joint_count++] = {y - c + 1, first, joined_count};
        }
        for (int32_t k = closers_before_[c]; k < closers_before_[d + 1]; ++k) {
            const int32_t y = closers_[k];
            const uint16_t region = q.region[y];
            closers[closer_count++] = {y - c + 1, row(q.fork[region], c), region, q.region_class[region]};
        }
        std::fill_n(cells, width, 0);
        for (int32_t i = 1; i <= n; ++i) {
            const int32_t x = a + i - 1;
            int32_t *const here = cells + size_t(i) * size_t(width);
            const int32_t *best = nullptr;  // over all predecessors of x
            for (int32_t e = p.step_offset[x]; e < p.step_offset[x + 1]; ++e) {
                if (idle(p, x, p.step[e])) continue;
                const int32_t *const other = cells + size_t(row(p.step[e], a)) * size_t(width);
                if (best == nullptr) {
                    best = other;
                } else {
                    if (best != over) std::copy_n(best, width, over);
                    largest(over, other, width);
                    best = over;
                }
            }
            const bool closes = closer_count > 0 && p.region[x] != NONE;
            if (!closes && !useful_[p.token[x] == NONE ? p.tokens : p.token[x]]) {
                std::copy_n(best, width, here);  // there is nothing to match
                continue;
            }
            const int32_t *const gain = gains(x) + c - 1;  // of column j
            here[0] = 0;
            skip_or_match(here, best, gain, width);
            for (int32_t k = 0; k < joint_count; ++k) {
                const Joint &joint = joints[k];
                int32_t from = best[joined[joint.first]];
                for (int32_t e = joint.first + 1; e < joint.last; ++e) from = std::max(from, best[joined[e]]);
                here[joint.column] = std::max(best[joint.column], from + gain[joint.column]);
            }
            if (closes) {
                const int32_t *const fork = cells + size_t(row(p.fork[p.region[x]], a)) * size_t(width);
                const int32_t *const memo = region_memo_ + size_t(p.region_class[p.region[x]]) * q.region_classes;
                for (int32_t k = 0; k < closer_count; ++k) {
                    const Closer &closer = closers[k];
                    int32_t value = memo[closer.kind];
                    if (value < 0) value = jump(p.region[x], closer.region);
                    here[closer.column] =
                        std::max(here[closer.column], fork[closer.fork] + gain[closer.column] + value);
                }
            }
            int32_t value = 0, j = 1;  // skip the child's element
            for (int32_t k = 0; k < joint_count; ++k) {
                const Joint &joint = joints[k];
                running_largest(here + j, joint.column - j, value);
                value = here[joint.column];
                for (int32_t e = joint.first; e < joint.last; ++e) value = std::max(value, here[joined[e]]);
                here[joint.column] = value;
                j = joint.column + 1;
            }
            running_largest(here + j, m + 1 - j, value);
        }
        arena_.release(mark);
        return {cells, width};
    }

    // Does each element of a run simply follow the one before?
    static bool chain(const Form &form, int32_t low, int32_t high) {
        for (int32_t x = low; x <= high; ++x)
            if (form.region[x] != NONE || (x > low && form.step[form.step_offset[x]] != x - 1)) return false;
        return true;
    }

    // The best value of two chains, the second a short one. Most branches are such chains, and there are many.
    int32_t chains(int32_t low, int32_t high, int32_t from, int32_t to) {
        const int32_t m = to - from + 1;
        int32_t best[SHORT + 1] = {};
        cells_ += int64_t(high - low + 1) * m;
        for (int32_t x = low; x <= high; ++x) {
            const int32_t *const gain = gains(x) + from - 1;
            int32_t across = 0, last = 0;
            for (int32_t j = 1; j <= m; ++j) {
                const int32_t above = best[j];
                best[j] = last = std::max({above, last, across + gain[j]});
                across = above;
            }
        }
        return best[m];
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
            const int32_t low = p_->low[a], high = p_->high[a], from = c_->low[b], to = c_->high[b];
            if (to - from < SHORT && chain(*p_, low, high) && chain(*c_, from, to)) {
                value = chains(low, high, from, to);
            } else {
                const Arena::Mark mark = arena_.mark();
                value = fill(low, high, from, to).at(high - low + 1, to - from + 1);
                arena_.release(mark);
            }
        }
        // Which operand of the closer a branch feeds is worth something: queries go to queries.
        if (value > 0 && p_->branch_label[a] == c_->branch_label[b]) value += int32_t(knobs_.edge);
        return memo = value;
    }

    int32_t jump(int32_t a, int32_t b) {
        int32_t &memo = region_memo_[size_t(p_->region_class[a]) * c_->region_classes + c_->region_class[b]];
        if (memo >= 0) return memo;
        const int32_t first = p_->branch_offset[a], n = p_->branch_offset[a + 1] - first;
        const int32_t other = c_->branch_offset[b], m = c_->branch_offset[b + 1] - other;
        if (n != 2 || m != 2) return memo = assign(a, b);
        return memo = std::max(branch(first, other) + branch(first + 1, other + 1),
                               branch(first, other + 1) + branch(first + 1, other));
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

    // A way back from a pair of rows: match both elements, and where both close a region perhaps jump.
    struct Back {
        bool valid, jumps;
        int32_t i, j;
    };

    // A run's table while it is walked back through.
    struct Walk {
        Table best;
        int32_t a, c;  // where the runs begin
    };

    // The row that skipping the parent's element leads to, if that costs nothing; else -1.
    int32_t skip_parent(const Walk &walk, int32_t i, int32_t j) const {
        const int32_t x = walk.a + i - 1, value = walk.best.at(i, j);
        for (int32_t e = p_->step_offset[x]; e < p_->step_offset[x + 1]; ++e)
            if (const int32_t from = row(p_->step[e], walk.a); walk.best.at(from, j) == value) return from;
        return -1;
    }

    int32_t skip_child(const Walk &walk, int32_t i, int32_t j) const {
        const int32_t y = walk.c + j - 1, value = walk.best.at(i, j);
        for (int32_t e = c_->step_offset[y]; e < c_->step_offset[y + 1]; ++e)
            if (const int32_t from = row(c_->step[e], walk.c); walk.best.at(i, from) == value) return from;
        return -1;
    }

    Back match(const Walk &walk, int32_t i, int32_t j) {
        const int32_t x = walk.a + i - 1, y = walk.c + j - 1, value = walk.best.at(i, j), gain = worth(x, y);
        const uint16_t r = p_->region[x], s = c_->region[y];
        if (r != NONE && s != NONE) {
            const int32_t fork = row(p_->fork[r], walk.a), other = row(c_->fork[s], walk.c);
            if (walk.best.at(fork, other) + gain + jump(r, s) == value) return {true, true, fork, other};
        }
        for (int32_t e = p_->step_offset[x]; e < p_->step_offset[x + 1]; ++e)
            for (int32_t f = c_->step_offset[y]; f < c_->step_offset[y + 1]; ++f) {
                const int32_t from = row(p_->step[e], walk.a), other = row(c_->step[f], walk.c);
                if (walk.best.at(from, other) + gain == value) return {true, false, from, other};
            }
        return {false, false, 0, 0};
    }

    // From a pair that could be matched, though an earlier element of the parent would serve as well: how
    // many pairs, going back, should be matched here? Where the parent has more blocks alike than the child,
    // the first lends to the first and the last ones to the others: a gap in the middle, and only one.
    int32_t late(const Walk &walk, int32_t i, int32_t j) {
        alike_.clear();
        while (i > 0 && j > 0 && walk.best.at(i, j) > 0) {
            const int32_t skip = skip_parent(walk, i, j);
            const Back back = skip >= 0 && gains_at(walk, i, j) ? match(walk, i, j) : Back{false, false, 0, 0};
            if (back.valid) {
                const uint16_t region = c_->region[walk.c + j - 1];
                alike_.push_back({c_->token[walk.c + j - 1], region == NONE ? -1 : c_->region_class[region]});
                i = back.i, j = back.j;
            } else if (skip >= 0) {
                i = skip;
            } else if (const int32_t other = skip_child(walk, i, j); other >= 0) {
                j = other;
            } else {
                break;
            }
        }
        // Which is the shortest block that repeats? If there are regions, blocks are made of them. What is
        // left over belongs to the first block: the rest of that has no choice.
        blocks_.clear();
        for (size_t k = 0; k < alike_.size(); ++k)
            if (alike_[k].second >= 0) blocks_.push_back(k);
        if (blocks_.size() <= 1)
            for (blocks_.clear(); blocks_.size() < alike_.size();) blocks_.push_back(blocks_.size());
        const size_t n = blocks_.size();
        auto repeats = [&](size_t block) {
            for (size_t k = 0; k + block < n; ++k)
                if (alike_[blocks_[k]] != alike_[blocks_[k + block]]) return false;
            return true;
        };
        for (size_t block = 1; 2 * block <= n; ++block)
            if (repeats(block)) return int32_t(blocks_[n - (n % block ? n % block : block) - 1] + 1);
        return int32_t(alike_.size());
    }

    bool gains_at(const Walk &walk, int32_t i, int32_t j) const {  // is a match here more than a step?
        const int32_t x = walk.a + i - 1, y = walk.c + j - 1;
        return worth(x, y) > 0 || (p_->region[x] != NONE && c_->region[y] != NONE);
    }

    // Walk back through the best values. Ties: skip the parent's (but see `late`), skip the child's, jump,
    // match; so that of the child's equal elements the earliest are matched.
    void trace(int32_t a, int32_t b, int32_t c, int32_t d) {
        const Arena::Mark mark = arena_.mark();
        const Walk walk{fill(a, b, c, d), a, c};
        int32_t i = b - a + 1, j = d - c + 1, matches = -1;  // to be made late; -1: not known yet
        while (i > 0 && j > 0 && walk.best.at(i, j) > 0) {
            const int32_t skip = skip_parent(walk, i, j);
            Back back{false, false, 0, 0};
            if (skip >= 0) {
                if (matches != 0 && gains_at(walk, i, j)) back = match(walk, i, j);
                if (back.valid && matches < 0) matches = late(walk, i, j);
                if (!back.valid || matches == 0) {
                    i = skip;
                    continue;
                }
                --matches;
            } else {
                if (const int32_t other = skip_child(walk, i, j); other >= 0) {
                    j = other;
                    continue;
                }
                back = match(walk, i, j);
                matches = -1;
            }
            const int32_t x = a + i - 1, y = c + j - 1;
            if (worth(x, y) > 0) pairs.push_back({uint16_t(x), uint16_t(y)});
            if (back.jumps) cross(p_->region[x], c_->region[y]);
            i = back.i, j = back.j;
        }
        arena_.release(mark);
    }

    // Align the branches of two regions that are matched; those set aside last, by what they feed.
    void cross(uint16_t r, uint16_t s) {
        assign(r, s);
        std::vector<int32_t> partner = partner_;
        const int32_t first = p_->branch_offset[r], other = c_->branch_offset[s];
        auto follow = [&](bool aside) {
            for (size_t k = 0; k < partner.size(); ++k) {
                const int32_t from = first + int32_t(k), to = other + partner[k];
                if (partner[k] < 0 || (p_->branch_label[from] == ASIDE) != aside) continue;
                if (p_->low[from] <= p_->high[from] && c_->low[to] <= c_->high[to])
                    trace(p_->low[from], p_->high[from], c_->low[to], c_->high[to]);
            }
        };
        follow(false);
        reassign(first, other, c_->branch_offset[s + 1] - other, partner);
        follow(true);
    }

    // Of branches that were set aside, those belong together that feed what is matched.
    void reassign(int32_t first, int32_t other, int32_t m, std::vector<int32_t> &partner) {
        constexpr int32_t MOST = 64;
        std::vector<int32_t> ours, theirs;
        for (size_t k = 0; k < partner.size(); ++k)
            if (p_->branch_label[first + int32_t(k)] == ASIDE) ours.push_back(int32_t(k));
        for (int32_t k = 0; k < m; ++k)
            if (c_->branch_label[other + k] == ASIDE) theirs.push_back(k);
        const int32_t n = int32_t(ours.size()), width = int32_t(theirs.size());
        if (n * width < 2 || n > MOST || width > MOST) return;
        const Arena::Mark mark = arena_.mark();
        int32_t *const values = arena_.take<int32_t>(size_t(n) * size_t(width));
        for (int32_t i = 0; i < n; ++i)
            for (int32_t j = 0; j < width; ++j) values[i * width + j] = branch(first + ours[i], other + theirs[j]);
        auto within = [](const Form &form, const std::vector<int32_t> &branches, int32_t base, uint16_t element) {
            for (size_t i = 0; i < branches.size(); ++i)
                if (form.low[base + branches[i]] <= element && element <= form.high[base + branches[i]]) return int(i);
            return -1;
        };
        for (const auto &[x, y] : pairs)
            for (int32_t e = p_->edge_offset[x]; e < p_->edge_offset[x + 1]; ++e)
                if (const int i = within(*p_, ours, first, p_->edge[e]); i >= 0)
                    for (int32_t f = c_->edge_offset[y]; f < c_->edge_offset[y + 1]; ++f)
                        if (const int j = within(*c_, theirs, other, c_->edge[f]); j >= 0)
                            values[i * width + j] += int32_t(
                                p_->edge_label[e] == c_->edge_label[f] ? knobs_.edge : knobs_.other_label);
        assign_best(values, n, width, partner_, arena_);
        for (int32_t i = 0; i < n; ++i)
            partner[size_t(ours[i])] = partner_[size_t(i)] < 0 ? -1 : theirs[size_t(partner_[size_t(i)])];
        arena_.release(mark);
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

    // Is there any match among elements without a partner?
    bool incomplete() {
        const size_t n = p_->elements, m = c_->elements;
        int32_t *const free = filled(m, 1), *const used = filled(n, 0), *const spare = filled(p_->tokens, 0);
        for (const auto &[x, y] : pairs) used[x] = 1, free[y] = 0;
        for (size_t x = 0; x < n; ++x)
            if (!used[x] && p_->token[x] != NONE) spare[p_->token[x]] = useful_[p_->token[x]];
        for (size_t t = 0; t < p_->tokens; ++t) {
            if (!spare[t]) continue;
            const int32_t *const gain = gains_ + t * m;
            for (size_t y = 0; y < m; ++y)
                if (free[y] && gain[y] > 0) return true;
        }
        return false;
    }

    // Match elements that lie between the same pairs: two such matches can never cross. Were there any?
    bool complete() {
        if (pairs.size() == p_->elements || pairs.size() == c_->elements || cells_ > MAX_CELLS) return false;
        const Arena::Mark mark = arena_.mark();
        if (!incomplete()) {
            arena_.release(mark);
            return false;
        }
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
            close(left_.data() + i, int32_t(k - i), right_.data() + j, int32_t(l - j));
            i = k, j = l;
        }
        arena_.release(mark);
        return pairs.size() > known;
    }

    void close(const Gap *xs, int32_t n, const Gap *ys, int32_t m) {
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
    int32_t *joints_ = nullptr, *closers_ = nullptr;                // elements of the child ...
    int32_t *joints_before_ = nullptr, *closers_before_ = nullptr;  // ... and how many come before each element
    int32_t *gains_ = nullptr, *branch_memo_ = nullptr, *region_memo_ = nullptr;
    std::vector<int32_t> partner_;
    std::vector<std::pair<uint16_t, int32_t>> alike_;  // of pairs on the way back: the child's token and region
    std::vector<size_t> blocks_;                       // which of them blocks are made of
    std::vector<Gap> left_, right_;
    std::vector<char> useful_;  // of each token of the parent: does it match any of the child's?
    int64_t cells_ = 0;
    Improver improver_;
};

}  // namespace modelkeeper
