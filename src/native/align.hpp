// Which elements of a parent lend to which elements of a child?
//
// In four steps, each of which adds to the matches of the one before:
//
//     best_values.hpp   the best value over paths through both forms, regions matched branch by branch
//     walk_back.hpp     the matches that make up that value
//     gaps.hpp          what the paths left over, where it lies between the same matches on both sides
//     improve.hpp       where no regions describe the graphs (NAS cells): would other pairs serve better?
//
// Scratch memory is kept between pairs.
#pragma once
#include <algorithm>
#include <cstdint>

#include "arena.hpp"
#include "best_values.hpp"
#include "form.hpp"
#include "gaps.hpp"
#include "improve.hpp"
#include "pair.hpp"
#include "walk_back.hpp"

namespace modelkeeper {

struct Score {
    int64_t layers = 0;  // the rewards of all matched elements
    int64_t edges = 0;   // the worth of all edges whose image is an edge
};

class Aligner {
  public:
    static constexpr size_t KEPT = size_t(16) << 20;  // bytes of scratch memory kept between pairs

    Matches pairs;  // of the last alignment, in no order

    // rows[t]: the rewards of the parent's local token t against each local token of the child.
    Score align(const Form &parent, const Form &child, const int32_t *const *rows, const Knobs &knobs) {
        arena_.reset(KEPT);
        pairs.clear();
        if (parent.elements == 0 || child.elements == 0) return {};
        Pair pair(parent, child, rows, knobs, arena_, pairs);
        BestValues values(pair);
        WalkBack(pair, values).trace({0, parent.elements - 1}, {0, child.elements - 1});
        Gaps(pair).close_all();
        if (Improver::applies(parent, child, arena_))
            improver_.improve(parent, child, knobs, [&pair](int32_t x, int32_t y) { return pair.worth(x, y); }, pairs);
        return count(pair);
    }

  private:
    static Score count(const Pair &pair) {
        const Form &parent = pair.parent, &child = pair.child;
        Score score;
        uint16_t *const image = pair.arena.take<uint16_t>(child.elements);  // the partner of each of the child's
        std::fill_n(image, child.elements, NONE);
        for (const auto &[x, y] : pair.matches) image[y] = x;
        for (const auto &[x, y] : pair.matches) {
            score.layers += pair.worth(x, y);
            for (int32_t e = child.edge_offset[y]; e < child.edge_offset[y + 1]; ++e)
                if (const uint16_t from = image[child.edge[e]]; from != NONE)
                    score.edges += pair.edge_worth(from, x, child.edge_label[e]);
        }
        return score;
    }

    Arena arena_;
    Improver improver_;
};

}  // namespace modelkeeper
