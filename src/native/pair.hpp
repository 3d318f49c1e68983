// Which two graphs are being aligned, and what is a match between their elements worth?
//
// All steps of an alignment work on one Pair, and add to its matches. Throughout, x is an element of the parent
// and y one of the child.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "arena.hpp"
#include "form.hpp"
#include "rows.hpp"
#include "tokens.hpp"

namespace modelkeeper {

using Matches = std::vector<std::pair<uint16_t, uint16_t>>;  // elements of the parent and of the child, in no order

class Pair {
  public:
    // What one pair may cost, beyond which regions are no longer matched branch by branch: some 2 s.
    static constexpr int64_t MAX_CELLS = int64_t(1) << 28;

    // rows[t]: the rewards of the parent's local token t against each local token of the child.
    Pair(const Form &parent_form, const Form &child_form, const int32_t *const *rows, const Knobs &all_knobs,
         Arena &scratch, Matches &matched)
        : parent(parent_form), child(child_form), knobs(all_knobs), arena(scratch), matches(matched) {
        // Rewards by element of the child, once for each token of the parent; the last row, that of virtual
        // joins, is of zeros. What no token matches at all is left out.
        gains_ = filled(size_t(parent.tokens + 1) * child.elements, 0);
        useful_ = arena.take<bool>(size_t(parent.tokens) + 1);
        useful_[parent.tokens] = false;
        int32_t *const number = arena.take<int32_t>(child.elements), *const reward = filled(child.tokens + 1, 0);
        for (size_t y = 0; y < child.elements; ++y) number[y] = std::min(child.token[y], child.tokens);
        for (size_t t = 0; t < parent.tokens; ++t) {
            useful_[t] = std::any_of(rows[t], rows[t] + child.tokens, [](int32_t gain) { return gain > 0; });
            if (!useful_[t]) continue;
            std::copy_n(rows[t], child.tokens, reward);
            pick(gains_ + t * child.elements, reward, number, child.elements);
        }
    }
    Pair(const Pair &) = delete;

    const Form &parent, &child;
    const Knobs &knobs;
    Arena &arena;
    Matches &matches;
    int64_t cells = 0;  // of tables, computed up to now

    // By the parent's local token: what it earns with each element of the child, and is that ever more than 0?
    const int32_t *token_gains(size_t token) const { return gains_ + token * child.elements; }
    bool token_useful(size_t token) const { return useful_[token]; }

    const int32_t *gains(int32_t x) const { return token_gains(token(x)); }
    bool useful(int32_t x) const { return token_useful(token(x)); }
    int32_t worth(int32_t x, int32_t y) const { return gains(x)[y]; }

    // The worth of an edge whose image is an edge, by what lies on both.
    int32_t label_worth(uint16_t parent_label, uint16_t child_label) const {
        return int32_t(parent_label == child_label ? knobs.edge : knobs.other_label);
    }

    // The same for the parent's edge between two elements, if there is one; else 0.
    int32_t edge_worth(uint16_t from, uint16_t to, uint16_t child_label) const {
        const uint16_t *const in = parent.edge + parent.edge_offset[to];
        const uint16_t *const end = parent.edge + parent.edge_offset[to + 1];
        const uint16_t *const at = std::lower_bound(in, end, from);
        return at == end || *at != from ? 0 : label_worth(parent.edge_label[at - parent.edge], child_label);
    }

    // Scratch memory, filled.
    int32_t *filled(size_t count, int32_t value) const {
        int32_t *made = arena.take<int32_t>(count);
        std::fill_n(made, count, value);
        return made;
    }

  private:
    size_t token(int32_t x) const { return parent.token[x] == NONE ? parent.tokens : parent.token[x]; }

    int32_t *gains_;
    bool *useful_;
};

// Elements that stand side by side in a form.
struct Run {
    int32_t low, high;
    int32_t size() const { return high - low + 1; }
};

// Values row by row. Where one run is set against another, row i stands for the parent's i-th element, column j
// for the child's j-th, row and column 0 for what lies before them.
struct Table {
    int32_t *cells;
    int32_t width;
    int32_t *row(int32_t i) const { return cells + size_t(i) * size_t(width); }
    int32_t at(int32_t i, int32_t j) const { return row(i)[j]; }

    // The row, or column, of an element in a table of a run that begins at `low`.
    static int32_t place(uint16_t element, int32_t low) {
        return element == NONE || element < low ? 0 : int32_t(element) - low + 1;
    }
};

}  // namespace modelkeeper
