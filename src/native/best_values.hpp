// How much can a run of the parent's elements earn with a run of the child's?
//
// The best value over paths through both: to reach (x, y), skip a parent's element, skip a child's, or match
// both; and where both close a region, jump: match the closers and assign branches to branches, each pair of
// branches aligned in its own right. A path may also run through one branch of a region, so that a plain
// network can match the trunk of one with shortcuts.
//
// Values of branch pairs and of region pairs are remembered by class; nothing is allocated per cell.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "assignment.hpp"
#include "pair.hpp"
#include "rows.hpp"

namespace modelkeeper {

class BestValues {
  public:
    static constexpr int64_t MAX_ASSIGNMENT = int64_t(1) << 22;
    static constexpr int32_t SHORT = 8;  // elements of a chain that is matched without a table

    explicit BestValues(Pair &pair) : pair_(pair), parent_(pair.parent), child_(pair.child), arena_(pair.arena) {
        branch_memo_ = pair.filled(size_t(parent_.branch_classes) * child_.branch_classes, -1);
        region_memo_ = pair.filled(size_t(parent_.region_classes) * child_.region_classes, -1);
        survey();
    }

    // The best values for all elements of the parent's run against those of the child's.
    Table fill(Run xs, Run ys) {
        const int32_t width = ys.size() + 1;
        pair_.cells += int64_t(xs.size()) * ys.size();
        const Table table{arena_.take<int32_t>(size_t(xs.size() + 1) * size_t(width)), width};
        const Arena::Mark mark = arena_.mark();
        const Filling filling{table, xs, ys, columns(ys), arena_.take<int32_t>(size_t(width))};
        std::fill_n(table.cells, width, 0);
        for (int32_t x = xs.low; x <= xs.high; ++x) {
            int32_t *const here = table.row(x - xs.low + 1);
            const int32_t *const best = best_before(filling, x);
            const bool closes = filling.columns.closer_count > 0 && parent_.region[x] != NONE;
            if (!closes && !pair_.useful(x)) {
                std::copy_n(best, width, here);  // there is nothing to match
                continue;
            }
            const int32_t *const gain = pair_.gains(x) + ys.low - 1;  // of column j
            match_in_row(filling, here, best, gain);
            if (closes) jump_in_row(filling, x, here, gain);
            skip_in_row(filling, here);
        }
        arena_.release(mark);
        return table;
    }

    // The best value of the branches of two regions.
    int32_t jump(int32_t region, int32_t other) {
        int32_t &memo = region_memo_[size_t(parent_.region_class[region]) * child_.region_classes +
                                     child_.region_class[other]];
        if (memo >= 0) return memo;
        const int32_t a = parent_.branch_offset[region], n = parent_.branch_offset[region + 1] - a;
        const int32_t b = child_.branch_offset[other], m = child_.branch_offset[other + 1] - b;
        if (n != 2 || m != 2) return memo = assign(region, other);
        return memo = std::max(branch(a, b) + branch(a + 1, b + 1), branch(a, b + 1) + branch(a + 1, b));
    }

    // The best value of two branches.
    int32_t branch(int32_t a, int32_t b) {
        int32_t &memo =
            branch_memo_[size_t(parent_.branch_class[a]) * child_.branch_classes + child_.branch_class[b]];
        if (memo >= 0) return memo;
        if ((parent_.branch_label[a] == ASIDE) != (child_.branch_label[b] == ASIDE)) return memo = 0;
        const Run xs{parent_.low[a], parent_.high[a]}, ys{child_.low[b], child_.high[b]};
        const bool bare = xs.size() <= 0, other_bare = ys.size() <= 0;
        int32_t value = 0;
        if (bare || other_bare)
            value = bare && other_bare ? int32_t(pair_.knobs.edge) : 0;
        else if (pair_.cells <= Pair::MAX_CELLS)
            value = run_value(xs, ys);
        // Which operand of the closer a branch feeds is worth something: queries go to queries.
        if (value > 0 && parent_.branch_label[a] == child_.branch_label[b]) value += int32_t(pair_.knobs.edge);
        return memo = value;
    }

    // For each branch of the parent's region the number of its partner in the child's, or -1: for the largest sum.
    std::vector<int32_t> partners(int32_t region, int32_t other) {
        assign(region, other);
        return partner_;
    }

  private:
    // A column of a table whose element does not simply follow the one before, and the columns before it.
    struct Joint {
        int32_t column;
        const int32_t *first, *last;
    };
    // A column whose element closes a region.
    struct Closer {
        int32_t column, fork, region, kind;
    };
    // What is special about the columns of a table.
    struct Columns {
        Joint *joints;
        Closer *closers;
        int32_t joint_count, closer_count;
    };
    // A table that is being filled, row by row.
    struct Filling {
        Table table;
        Run xs, ys;
        Columns columns;
        int32_t *scratch;  // one row
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
        const size_t n = child_.elements;
        joints_ = arena_.take<int32_t>(n), closers_ = arena_.take<int32_t>(n);
        joints_before_ = pair_.filled(n + 1, 0), closers_before_ = pair_.filled(n + 1, 0);
        int32_t joints = 0, closers = 0;
        for (int32_t y = 0; y < int32_t(n); ++y) {
            bool follows = true;
            for (int32_t e = child_.step_offset[y]; e < child_.step_offset[y + 1]; ++e)
                follows &= Table::place(child_.step[e], 0) == y || idle(child_, y, child_.step[e]);
            if (!follows) joints_[joints++] = y;
            if (child_.region[y] != NONE) closers_[closers++] = y;
            joints_before_[y + 1] = joints, closers_before_[y + 1] = closers;
        }
    }

    Columns columns(Run ys) {
        const int32_t first_joint = joints_before_[ys.low], last_joint = joints_before_[ys.high + 1];
        const int32_t first_closer = closers_before_[ys.low], last_closer = closers_before_[ys.high + 1];
        Columns made{arena_.take<Joint>(size_t(last_joint - first_joint)),
                     arena_.take<Closer>(size_t(last_closer - first_closer)), 0, 0};
        int32_t *joined = arena_.take<int32_t>(size_t(child_.step_offset[ys.high + 1] - child_.step_offset[ys.low]));
        for (int32_t k = first_joint; k < last_joint; ++k) {
            const int32_t y = joints_[k], *const first = joined;
            for (int32_t e = child_.step_offset[y]; e < child_.step_offset[y + 1]; ++e)
                if (!idle(child_, y, child_.step[e])) *joined++ = Table::place(child_.step[e], ys.low);
            made.joints[made.joint_count++] = {y - ys.low + 1, first, joined};
        }
        for (int32_t k = first_closer; k < last_closer; ++k) {
            const int32_t y = closers_[k], region = child_.region[y];
            made.closers[made.closer_count++] = {y - ys.low + 1, Table::place(child_.fork[region], ys.low), region,
                                                 child_.region_class[region]};
        }
        return made;
    }

    // The best that was reached at any element before x, column by column.
    const int32_t *best_before(const Filling &filling, int32_t x) const {
        const int32_t width = filling.table.width;
        const int32_t *best = nullptr;
        for (int32_t e = parent_.step_offset[x]; e < parent_.step_offset[x + 1]; ++e) {
            if (idle(parent_, x, parent_.step[e])) continue;
            const int32_t *const other = filling.table.row(Table::place(parent_.step[e], filling.xs.low));
            if (best == nullptr) {
                best = other;
            } else {
                if (best != filling.scratch) std::copy_n(best, width, filling.scratch);
                largest(filling.scratch, other, width);
                best = filling.scratch;
            }
        }
        return best;
    }

    // Skip the parent's element, or match it with the child's.
    static void match_in_row(const Filling &filling, int32_t *here, const int32_t *best, const int32_t *gain) {
        here[0] = 0;
        skip_or_match(here, best, gain, filling.table.width);
        for (int32_t k = 0; k < filling.columns.joint_count; ++k) {
            const Joint &joint = filling.columns.joints[k];
            int32_t from = best[*joint.first];
            for (const int32_t *column = joint.first + 1; column < joint.last; ++column)
                from = std::max(from, best[*column]);
            here[joint.column] = std::max(best[joint.column], from + gain[joint.column]);
        }
    }

    // Where the parent's element closes a region and the child's one, too: match both regions.
    void jump_in_row(const Filling &filling, int32_t x, int32_t *here, const int32_t *gain) {
        const int32_t region = parent_.region[x];
        const int32_t *const fork = filling.table.row(Table::place(parent_.fork[region], filling.xs.low));
        const int32_t *const memo = region_memo_ + size_t(parent_.region_class[region]) * child_.region_classes;
        for (int32_t k = 0; k < filling.columns.closer_count; ++k) {
            const Closer &closer = filling.columns.closers[k];
            int32_t value = memo[closer.kind];
            if (value < 0) value = jump(region, closer.region);
            here[closer.column] = std::max(here[closer.column], fork[closer.fork] + gain[closer.column] + value);
        }
    }

    // Skip the child's element.
    static void skip_in_row(const Filling &filling, int32_t *here) {
        int32_t value = 0, j = 1;
        for (int32_t k = 0; k < filling.columns.joint_count; ++k) {
            const Joint &joint = filling.columns.joints[k];
            running_largest(here + j, joint.column - j, value);
            value = here[joint.column];
            for (const int32_t *column = joint.first; column < joint.last; ++column)
                value = std::max(value, here[*column]);
            here[joint.column] = value;
            j = joint.column + 1;
        }
        running_largest(here + j, filling.table.width - j, value);
    }

    int32_t run_value(Run xs, Run ys) {
        if (ys.size() <= SHORT && chain(parent_, xs) && chain(child_, ys)) return chain_value(xs, ys);
        const Arena::Mark mark = arena_.mark();
        const int32_t value = fill(xs, ys).at(xs.size(), ys.size());
        arena_.release(mark);
        return value;
    }

    // Does each element of a run simply follow the one before?
    static bool chain(const Form &form, Run run) {
        for (int32_t x = run.low; x <= run.high; ++x)
            if (form.region[x] != NONE || (x > run.low && form.step[form.step_offset[x]] != x - 1)) return false;
        return true;
    }

    // The best value of two chains, the second a short one. Most branches are such chains, and there are many.
    int32_t chain_value(Run xs, Run ys) {
        const int32_t m = ys.size();
        int32_t best[SHORT + 1] = {};
        pair_.cells += int64_t(xs.size()) * m;
        for (int32_t x = xs.low; x <= xs.high; ++x) {
            const int32_t *const gain = pair_.gains(x) + ys.low - 1;
            int32_t across = 0, last = 0;
            for (int32_t j = 1; j <= m; ++j) {
                const int32_t above = best[j];
                best[j] = last = std::max({above, last, across + gain[j]});
                across = above;
            }
        }
        return best[m];
    }

    // Assign branches to branches for the largest sum; `partner_[i]` is then the i-th branch's, or -1.
    int32_t assign(int32_t region, int32_t other) {
        const int32_t a = parent_.branch_offset[region], n = parent_.branch_offset[region + 1] - a;
        const int32_t b = child_.branch_offset[other], m = child_.branch_offset[other + 1] - b;
        const Arena::Mark mark = arena_.mark();
        const Table values{arena_.take<int32_t>(size_t(n) * size_t(m)), m};
        for (int32_t i = 0; i < n; ++i)
            for (int32_t j = 0; j < m; ++j) values.row(i)[j] = branch(a + i, b + j);
        const int64_t work = int64_t(std::min(n, m)) * std::min(n, m) * std::max(n, m);
        if (pair_.cells > Pair::MAX_CELLS || work > MAX_ASSIGNMENT)
            assign_in_order(values.cells, n, m, partner_);
        else
            assign_best(values.cells, n, m, partner_, arena_);
        pair_.cells += work <= MAX_ASSIGNMENT ? work : int64_t(n) * m;
        int32_t sum = 0;
        for (int32_t i = 0; i < n; ++i)
            if (partner_[size_t(i)] >= 0) sum += values.at(i, partner_[size_t(i)]);
        arena_.release(mark);
        return sum;
    }

    Pair &pair_;
    const Form &parent_, &child_;
    Arena &arena_;
    int32_t *joints_, *closers_;                // elements of the child ...
    int32_t *joints_before_, *closers_before_;  // ... and how many come before each element
    int32_t *branch_memo_, *region_memo_;       // values by class of the parent's and the child's; -1: not known yet
    std::vector<int32_t> partner_;
};

}  // namespace modelkeeper
