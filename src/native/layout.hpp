// How is a decomposed graph laid out in memory, as a form?
//
// Its plans are written one inside the other: each node becomes an element behind those a path may come from, the
// branches of a region become runs of elements, and equal regions and branches get equal classes.
#pragma once
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include "decompose.hpp"
#include "form.hpp"

namespace modelkeeper {

class Layout {
  public:
    // token[v]: the number of node v's token.
    Layout(const Decomposition &graph, const int32_t *token) : graph_(graph), token_(token) { emit(graph.whole, NONE); }

    std::vector<int32_t> nodes;   // of each element, or -1
    std::vector<int32_t> tokens;  // of each local token: the number it was given as

    // The form of the graph: see form.hpp for what its columns mean.
    std::vector<uint16_t> form() {
        using Column = std::vector<uint16_t>;
        const Column token = token_column();
        const EdgeColumns edges = edge_columns();
        const RegionColumns regions = region_columns();
        if (edges.source.size() >= NONE || steps_.size() >= NONE || nodes.size() >= NONE || regions.low.size() >= NONE)
            throw std::length_error("the graph is too large to be aligned");
        std::vector<uint16_t> form;
        for (size_t size : {nodes.size(), tokens.size(), steps_.size(), regions.fork.size(), regions.low.size(),
                            regions.branch_classes, regions.region_classes, edges.source.size()})
            form.push_back(uint16_t(size));
        const std::initializer_list<const Column *> columns{
            &token, &closes_, &step_offset_, &steps_,
            &regions.fork, &regions.region_class, &regions.branch_offset,
            &regions.low, &regions.high, &regions.branch_class, &regions.branch_label,
            &edges.offset, &edges.source, &edges.label};
        for (const Column *column : columns) form.insert(form.end(), column->begin(), column->end());
        return form;
    }

  private:
    using Branch = Decomposition::Branch;
    using Region = Decomposition::Region;
    using Item = Decomposition::Item;

    // A branch and a region where they lie among the elements.
    struct PlacedBranch {
        uint16_t low, high;
        uint64_t hash;
        uint16_t label;
    };
    struct PlacedRegion {
        uint16_t fork;
        uint64_t hash;
        std::vector<PlacedBranch> branches;
    };
    struct EdgeColumns {
        std::vector<uint16_t> offset{0}, source, label;
    };
    struct RegionColumns {
        std::vector<uint16_t> fork, region_class, branch_offset{0}, low, high, branch_class, branch_label;
        size_t region_classes = 0, branch_classes = 0;
    };

    // Add an element; returns its number.
    uint16_t element(int32_t node, const std::vector<uint16_t> &steps, uint16_t closes) {
        nodes.push_back(node);
        closes_.push_back(closes);
        steps_.insert(steps_.end(), steps.begin(), steps.end());
        step_offset_.push_back(uint16_t(steps_.size()));
        return uint16_t(nodes.size() - 1);
    }

    // Lay out a plan behind the element `start`; returns the last element.
    uint16_t emit(int number, uint16_t start) {
        uint16_t last = start;
        for (const Item item : graph_.plans[size_t(number)].items)
            last = item.region < 0 ? element(item.node, {last}, NONE) : emit_region(item, last);
        return last;
    }

    uint16_t emit_region(Item item, uint16_t fork) {
        const Region &region = graph_.regions[size_t(item.region)];
        PlacedRegion placed{fork, region.hash, {}};
        std::vector<uint16_t> tips;
        for (const Branch &branch : region.branches) {
            if (branch.plan < 0) {
                placed.branches.push_back({1, 0, branch.hash, branch.label});
                tips.push_back(fork);
                continue;
            }
            const uint16_t low = uint16_t(nodes.size());
            tips.push_back(emit(branch.plan, region.linear && low > 0 ? uint16_t(low - 1) : fork));
            placed.branches.push_back({low, uint16_t(nodes.size() - 1), branch.hash, branch.label});
        }
        std::sort(tips.rbegin(), tips.rend());  // the element just before comes first: the kernel counts on it
        tips.erase(std::unique(tips.begin(), tips.end()), tips.end());
        if (region.linear) tips.resize(1);
        placed_.push_back(std::move(placed));
        return element(item.node, tips, uint16_t(placed_.size() - 1));
    }

    // The local token of each element. `tokens` then says which ones they are.
    std::vector<uint16_t> token_column() {
        std::map<int32_t, uint16_t> known;
        std::vector<uint16_t> column;
        for (int32_t v : nodes) {
            if (v < 0) {
                column.push_back(NONE);
                continue;
            }
            auto [at, fresh] = known.try_emplace(token_[v], uint16_t(tokens.size()));
            if (fresh) tokens.push_back(token_[v]);
            column.push_back(at->second);
        }
        return column;
    }

    EdgeColumns edge_columns() const {
        std::vector<uint16_t> element(graph_.size());
        for (size_t i = 0; i < nodes.size(); ++i)
            if (nodes[i] >= 0) element[size_t(nodes[i])] = uint16_t(i);
        EdgeColumns columns;
        std::vector<std::pair<uint16_t, uint16_t>> in;
        for (int32_t v : nodes) {
            in.clear();
            if (v >= 0)
                for (const auto *links : graph_.inputs(v))
                    for (const auto &[q, label] : *links) in.push_back({element[size_t(q)], label});
            std::sort(in.begin(), in.end());
            for (const auto &[q, label] : in) columns.source.push_back(q), columns.label.push_back(label);
            columns.offset.push_back(uint16_t(columns.source.size()));
        }
        return columns;
    }

    RegionColumns region_columns() const {
        std::map<uint64_t, uint16_t> branch_classes, region_classes;
        auto number = [](auto &classes, uint64_t hash) {
            return classes.try_emplace(hash, uint16_t(classes.size())).first->second;
        };
        RegionColumns columns;
        for (const PlacedRegion &region : placed_) {
            columns.fork.push_back(region.fork);
            columns.region_class.push_back(number(region_classes, region.hash));
            for (const PlacedBranch &branch : region.branches) {
                columns.low.push_back(branch.low);
                columns.high.push_back(branch.high);
                columns.branch_class.push_back(number(branch_classes, branch.hash));
                columns.branch_label.push_back(branch.label);
            }
            columns.branch_offset.push_back(uint16_t(columns.low.size()));
        }
        columns.region_classes = region_classes.size(), columns.branch_classes = branch_classes.size();
        return columns;
    }

    const Decomposition &graph_;
    const int32_t *token_;
    std::vector<PlacedRegion> placed_;
    std::vector<uint16_t> closes_, steps_, step_offset_{0};
};

}  // namespace modelkeeper
