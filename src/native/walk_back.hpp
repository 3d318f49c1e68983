// Which matches make up the best value?
//
// They are found on the way back through a table, from its last cell to its first. Ties: skip the parent's
// element, skip the child's, jump over a region, match; so that of the child's equal elements the earliest are
// matched. But where the parent has more blocks alike than the child, the first lends to the first and the last
// ones to the others: a gap in the middle, and only one.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "assignment.hpp"
#include "best_values.hpp"
#include "pair.hpp"

namespace modelkeeper {

class WalkBack {
  public:
    WalkBack(Pair &pair, BestValues &values)
        : pair_(pair), values_(values), parent_(pair.parent), child_(pair.child), arena_(pair.arena) {}

    // Add the matches of a run of the parent and one of the child.
    void trace(Run xs, Run ys) {
        const Arena::Mark mark = arena_.mark();
        const Walk walk{values_.fill(xs, ys), xs.low, ys.low};
        int32_t late = -1;  // matches to be made although skipping the parent's costs nothing; -1: not known yet
        for (Cell at{xs.size(), ys.size()}; walk.goes_on(at);) {
            const int32_t skip = skip_parent(walk, at);
            Step step;
            if (skip >= 0) {
                if (late != 0 && gains_at(walk, at)) step = match(walk, at);
                if (step.matches && late < 0) late = matches_before_gap(walk, at);
                if (!step.matches || late == 0) {
                    at.i = skip;
                    continue;
                }
                --late;
            } else {
                if (const int32_t other = skip_child(walk, at); other >= 0) {
                    at.j = other;
                    continue;
                }
                step = match(walk, at);
                late = -1;
            }
            const int32_t x = walk.x(at), y = walk.y(at);
            if (pair_.worth(x, y) > 0) pair_.matches.push_back({uint16_t(x), uint16_t(y)});
            if (step.jumps) cross(parent_.region[x], child_.region[y]);
            at = step.to;
        }
        arena_.release(mark);
    }

  private:
    struct Cell {
        int32_t i, j;
    };

    // A way back from a cell: both elements are matched, and where both close a region perhaps all inside, too.
    struct Step {
        bool matches = false, jumps = false;
        Cell to{0, 0};
    };

    // A table while it is walked back through.
    struct Walk {
        Table best;
        int32_t first_x, first_y;  // where the runs begin
        int32_t x(Cell at) const { return first_x + at.i - 1; }
        int32_t y(Cell at) const { return first_y + at.j - 1; }
        int32_t value(Cell at) const { return best.at(at.i, at.j); }
        bool goes_on(Cell at) const { return at.i > 0 && at.j > 0 && value(at) > 0; }
    };

    // The row that skipping the parent's element leads to, if that costs nothing; else -1.
    int32_t skip_parent(const Walk &walk, Cell at) const {
        const int32_t x = walk.x(at), value = walk.value(at);
        for (int32_t e = parent_.step_offset[x]; e < parent_.step_offset[x + 1]; ++e)
            if (const int32_t i = Table::place(parent_.step[e], walk.first_x); walk.best.at(i, at.j) == value) return i;
        return -1;
    }

    // Likewise the column that skipping the child's element leads to.
    int32_t skip_child(const Walk &walk, Cell at) const {
        const int32_t y = walk.y(at), value = walk.value(at);
        for (int32_t e = child_.step_offset[y]; e < child_.step_offset[y + 1]; ++e)
            if (const int32_t j = Table::place(child_.step[e], walk.first_y); walk.best.at(at.i, j) == value) return j;
        return -1;
    }

    // The step that matches both elements, if the best value may come from it.
    Step match(const Walk &walk, Cell at) {
        const int32_t x = walk.x(at), y = walk.y(at), value = walk.value(at), gain = pair_.worth(x, y);
        const uint16_t region = parent_.region[x], other = child_.region[y];
        if (region != NONE && other != NONE) {
            const Cell fork{Table::place(parent_.fork[region], walk.first_x),
                            Table::place(child_.fork[other], walk.first_y)};
            if (walk.value(fork) + gain + values_.jump(region, other) == value) return {true, true, fork};
        }
        for (int32_t e = parent_.step_offset[x]; e < parent_.step_offset[x + 1]; ++e)
            for (int32_t f = child_.step_offset[y]; f < child_.step_offset[y + 1]; ++f) {
                const Cell from{Table::place(parent_.step[e], walk.first_x),
                                Table::place(child_.step[f], walk.first_y)};
                if (walk.value(from) + gain == value) return {true, false, from};
            }
        return {};
    }

    // Is a match here more than a step?
    bool gains_at(const Walk &walk, Cell at) const {
        const int32_t x = walk.x(at), y = walk.y(at);
        return pair_.worth(x, y) > 0 || (parent_.region[x] != NONE && child_.region[y] != NONE);
    }

    // From a cell where both elements could be matched, though an earlier element of the parent would serve as
    // well: how many matches, going back, should be made here, behind the gap?
    int32_t matches_before_gap(const Walk &walk, Cell at) {
        collect_choices(walk, at);
        // Blocks are made of regions, if there are any.
        blocks_.clear();
        for (size_t k = 0; k < choices_.size(); ++k)
            if (choices_[k].region_class >= 0) blocks_.push_back(k);
        if (blocks_.size() <= 1)
            for (blocks_.clear(); blocks_.size() < choices_.size();) blocks_.push_back(blocks_.size());
        // The shortest block that repeats counts. What is left over belongs to the first block: the rest of that
        // has no choice.
        const size_t n = blocks_.size();
        for (size_t block = 1; 2 * block <= n; ++block)
            if (repeats(block)) return int32_t(blocks_[n - (n % block ? n % block : block) - 1] + 1);
        return int32_t(choices_.size());
    }

    // All matches, going back from a cell, in whose place the parent's element could be skipped.
    void collect_choices(const Walk &walk, Cell at) {
        choices_.clear();
        while (walk.goes_on(at)) {
            const int32_t skip = skip_parent(walk, at);
            const Step step = skip >= 0 && gains_at(walk, at) ? match(walk, at) : Step{};
            if (step.matches) {
                const int32_t y = walk.y(at);
                const uint16_t region = child_.region[y];
                choices_.push_back({child_.token[y], region == NONE ? -1 : child_.region_class[region]});
                at = step.to;
            } else if (skip >= 0) {
                at.i = skip;
            } else if (const int32_t other = skip_child(walk, at); other >= 0) {
                at.j = other;
            } else {
                return;
            }
        }
    }

    // Are choices that stand so many blocks apart alike?
    bool repeats(size_t apart) const {
        for (size_t k = 0; k + apart < blocks_.size(); ++k)
            if (!(choices_[blocks_[k]] == choices_[blocks_[k + apart]])) return false;
        return true;
    }

    // Align the branches of two regions that are matched; those set aside last, by what they feed.
    void cross(uint16_t region, uint16_t other) {
        std::vector<int32_t> partner = values_.partners(region, other);
        const int32_t a = parent_.branch_offset[region], b = child_.branch_offset[other];
        trace_branches(a, b, partner, false);
        reassign_aside(a, b, child_.branch_offset[other + 1] - b, partner);
        trace_branches(a, b, partner, true);
    }

    // Trace the branches from a on with their partners from b on, either those set aside or the others.
    void trace_branches(int32_t a, int32_t b, const std::vector<int32_t> &partner, bool aside) {
        for (size_t k = 0; k < partner.size(); ++k) {
            const int32_t from = a + int32_t(k), to = b + partner[k];
            if (partner[k] < 0 || (parent_.branch_label[from] == ASIDE) != aside) continue;
            if (parent_.low[from] <= parent_.high[from] && child_.low[to] <= child_.high[to])
                trace({parent_.low[from], parent_.high[from]}, {child_.low[to], child_.high[to]});
        }
    }

    // Of branches that were set aside, those belong together that feed what is matched.
    void reassign_aside(int32_t a, int32_t b, int32_t count, std::vector<int32_t> &partner) {
        constexpr size_t MOST = 64;
        const auto xs = branches_aside(parent_, a, int32_t(partner.size())), ys = branches_aside(child_, b, count);
        if (xs.size() * ys.size() < 2 || xs.size() > MOST || ys.size() > MOST) return;
        const int32_t n = int32_t(xs.size()), m = int32_t(ys.size());
        const Arena::Mark mark = arena_.mark();
        const Table earns{arena_.take<int32_t>(size_t(n) * size_t(m)), m};
        for (int32_t i = 0; i < n; ++i)
            for (int32_t j = 0; j < m; ++j) earns.row(i)[j] = values_.branch(xs[size_t(i)], ys[size_t(j)]);
        for (const auto &[x, y] : pair_.matches)
            for (int32_t e = parent_.edge_offset[x]; e < parent_.edge_offset[x + 1]; ++e)
                if (const int32_t i = holding(parent_, xs, parent_.edge[e]); i >= 0)
                    for (int32_t f = child_.edge_offset[y]; f < child_.edge_offset[y + 1]; ++f)
                        if (const int32_t j = holding(child_, ys, child_.edge[f]); j >= 0)
                            earns.row(i)[j] += pair_.label_worth(parent_.edge_label[e], child_.edge_label[f]);
        std::vector<int32_t> chosen;
        assign_best(earns.cells, n, m, chosen, arena_);
        for (size_t i = 0; i < xs.size(); ++i)
            partner[size_t(xs[i] - a)] = chosen[i] < 0 ? -1 : ys[size_t(chosen[i])] - b;
        arena_.release(mark);
    }

    // Which of `count` branches were set aside?
    static std::vector<int32_t> branches_aside(const Form &form, int32_t first, int32_t count) {
        std::vector<int32_t> aside;
        for (int32_t branch = first; branch < first + count; ++branch)
            if (form.branch_label[branch] == ASIDE) aside.push_back(branch);
        return aside;
    }

    // The place of the branch that holds an element, or -1.
    static int32_t holding(const Form &form, const std::vector<int32_t> &branches, uint16_t element) {
        for (size_t i = 0; i < branches.size(); ++i)
            if (form.low[branches[i]] <= element && element <= form.high[branches[i]]) return int32_t(i);
        return -1;
    }

    // A match that could as well be made with an earlier element of the parent.
    struct Choice {
        uint16_t token;        // of the child's element
        int32_t region_class;  // of the region it closes, or -1
        bool operator==(const Choice &other) const {
            return token == other.token && region_class == other.region_class;
        }
    };

    Pair &pair_;
    BestValues &values_;
    const Form &parent_, &child_;
    Arena &arena_;
    std::vector<Choice> choices_;
    std::vector<size_t> blocks_;  // which of them blocks are made of
};

}  // namespace modelkeeper
