// What does a part of a graph look like on its own?
//
// A graph, and for any set of its nodes: where data enters and leaves it, of which components it
// consists, which merges own what leads to them, and how its nodes can be told apart.
#pragma once
#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "colours.hpp"

namespace modelkeeper {

class Parts {
  protected:
    static constexpr int64_t TIE_BUDGET = 20'000'000;  // edge visits spent on symmetric nodes: 0.1 s

    using Link = std::pair<int32_t, uint16_t>;  // a node and the label of the edge
    using Nodes = std::vector<int32_t>;         // in topological order

    struct Local {  // a part of the graph with numbers of its own
        std::vector<uint64_t> colour, edge;
        std::vector<int32_t> offset{0}, source;
        Dag dag() const { return {colour.size(), colour.data(), offset.data(), source.data(), edge.data()}; }
    };

    // For node v its content (a hash), and its predecessors with the labels of the edges.
    Parts(size_t n, const uint64_t *content, const int32_t *offset, const int32_t *source, const uint16_t *label)
        : n_(int(n)),
          preds_(n),
          succs_(n),
          colour_(content, content + n),
          aside_(n),
          side_(n, 0),
          content_(content),
          place_(n, -1) {
        for (int v = 0; v < n_; ++v) {
            auto &in = preds_[size_t(v)];
            for (int32_t e = offset[v]; e < offset[v + 1]; ++e) in.push_back({source[e], label[e]});
            std::sort(in.begin(), in.end());
            size_t kept = 0;  // an edge given twice is one edge whose label tells so
            for (const auto &edge : in) {
                if (kept && in[kept - 1].first == edge.first)
                    in[kept - 1].second = uint16_t(in[kept - 1].second + edge.second);
                else
                    in[kept++] = edge;
            }
            in.resize(kept);
            for (const auto &edge : in) succs_[size_t(edge.first)].push_back({v, edge.second});
        }
        const Local whole = local(all());
        const Dag dag = whole.dag();
        Refiner(dag).refine(colour_, TIE_BUDGET);
        set_aside();
    }

    size_t size() const { return size_t(n_); }

    // The edges into a node: those there are, and those that were set aside.
    std::array<const std::vector<Link> *, 2> inputs(int32_t v) const {
        return {&preds_[size_t(v)], &aside_[size_t(v)]};
    }

    Nodes all() const {
        Nodes nodes(static_cast<size_t>(n_));
        std::iota(nodes.begin(), nodes.end(), 0);
        return nodes;
    }

    int32_t place(int32_t v) const { return place_[size_t(v)]; }  // its number in the part at hand, or -1
    void enter(const Nodes &part) {
        for (size_t i = 0; i < part.size(); ++i) place_[size_t(part[i])] = int32_t(i);
    }
    void leave(const Nodes &part) {
        for (int32_t v : part) place_[size_t(v)] = -1;
    }

    Local local(const Nodes &part) {
        enter(part);
        Local found;
        for (int32_t v : part) {
            found.colour.push_back(colour_[size_t(v)]);
            for (const auto &[q, label] : preds_[size_t(v)])
                if (place(q) >= 0) found.source.push_back(place(q)), found.edge.push_back(label);
            found.offset.push_back(int32_t(found.source.size()));
        }
        leave(part);
        return found;
    }

    bool begins(int32_t v) const {  // takes something from outside the part, or nothing at all
        const auto &in = preds_[size_t(v)];
        return in.empty() || std::any_of(in.begin(), in.end(), [this](const Link &l) { return place(l.first) < 0; });
    }
    bool ends(int32_t v) const {
        const auto &out = succs_[size_t(v)];
        return out.empty() || std::any_of(out.begin(), out.end(), [this](const Link &l) { return place(l.first) < 0; });
    }

    uint64_t signature(int32_t v) const {  // its content and what comes in, seen from inside the part
        uint64_t sum = 0;
        for (const auto &[q, label] : preds_[size_t(v)]) sum += mix(label, place(q) >= 0 ? 1 : 2);
        for (const auto &[q, label] : aside_[size_t(v)]) sum += mix(label, 2);
        return mix(content_[v], sum);
    }

    std::vector<Nodes> components(const Nodes &part) {
        enter(part);
        std::vector<int32_t> root(part.size());
        std::iota(root.begin(), root.end(), 0);
        auto find = [&root](int32_t x) {
            while (root[size_t(x)] != x) x = root[size_t(x)] = root[size_t(root[size_t(x)])];
            return x;
        };
        for (int32_t v : part)
            for (const Link &l : preds_[size_t(v)])
                if (place(l.first) >= 0) root[size_t(find(place(v)))] = find(place(l.first));
        std::map<int32_t, size_t> number;
        std::vector<Nodes> found;
        for (int32_t v : part) {
            const size_t at = number.try_emplace(find(place(v)), found.size()).first->second;
            if (at == found.size()) found.emplace_back();
            found[at].push_back(v);
        }
        leave(part);
        return found;
    }

    const Link *edge_to(int32_t from, int32_t to) const {
        for (const Link &l : preds_[size_t(to)])
            if (l.first == from) return &l;
        return nullptr;
    }

    // Inside a primitive part: for each merge (by local number) the nodes that lead to it and nowhere
    // else. The outermost merges only.
    std::map<int32_t, Nodes> enclosed(const Nodes &part) {
        enter(part);
        const int32_t size = int32_t(part.size()), outside = size;
        std::vector<int32_t> exit(size_t(size) + 1, outside), depth(size_t(size) + 1, 0);
        for (int32_t i = size - 1; i >= 0; --i) {  // the first node that all paths from i cross
            int32_t found = -1;
            for (const Link &l : succs_[size_t(part[size_t(i)])]) {
                int32_t other = place(l.first) < 0 ? outside : place(l.first);
                if (found < 0) found = other;
                while (found != other) {
                    if (found == outside || other == outside)
                        found = other = outside;
                    else if (depth[size_t(found)] >= depth[size_t(other)])
                        found = exit[size_t(found)];
                    else
                        other = exit[size_t(other)];
                }
            }
            exit[size_t(i)] = found < 0 ? outside : found;
            depth[size_t(i)] = depth[size_t(exit[size_t(i)])] + 1;
        }
        leave(part);
        std::map<int32_t, Nodes> found;
        std::vector<int32_t> owner(size_t(size), -1);
        for (int32_t v = size - 1; v >= 0; --v) {
            if (exit[size_t(v)] != outside) owner[size_t(v)] = owner[size_t(exit[size_t(v)])];
            if (owner[size_t(v)] < 0 && preds_[size_t(part[size_t(v)])].size() > 1)
                owner[size_t(v)] = v;
            else if (owner[size_t(v)] >= 0)
                found[owner[size_t(v)]].push_back(part[size_t(v)]);
        }
        for (auto &[closer, inner] : found) std::reverse(inner.begin(), inner.end());
        return found;
    }

    // Colours for a part in which no two nodes share one, as far as the budget reaches: pick a node
    // of the first shared colour, mark it, let the mark spread.
    std::vector<uint64_t> distinct(const Nodes &part) {
        const Local sub = local(part);
        const Dag dag = sub.dag();
        std::vector<uint64_t> colour = sub.colour, sorted;
        Refiner refiner(dag);
        for (;;) {
            sorted = colour;
            std::sort(sorted.begin(), sorted.end());
            const auto tie = std::adjacent_find(sorted.begin(), sorted.end());
            if (tie == sorted.end() || spent_ > TIE_BUDGET) return colour;
            auto &marked = *std::find(colour.begin(), colour.end(), *tie);
            marked = mix(marked, 7);
            refiner.refine(colour, TIE_BUDGET - spent_);
            spent_ += 3 * refiner.visits();
        }
    }

    const int n_;
    std::vector<std::vector<Link>> preds_, succs_;
    std::vector<uint64_t> colour_;
    std::vector<std::vector<Link>> aside_;  // predecessors that are left out of `preds_`
    std::vector<char> side_;                // is a node of a part whose edges are set aside?

  private:
    static constexpr size_t SMALL = 32;

    // What is small, comes from nowhere and feeds merges all along a network (an attention mask, biases of
    // positions) would leave no node that every path crosses. Its edges are set aside.
    void set_aside() {
        std::vector<std::pair<int32_t, Nodes>> found;
        std::vector<char> doubtful(size_t(n_), 0);
        for (int32_t u = 0; u < n_; ++u) {
            const auto &readers = succs_[size_t(u)];
            if (readers.size() < 2 || std::any_of(readers.begin(), readers.end(), [this](const Link &l) {
                    return preds_[size_t(l.first)].size() < 2;
                }))
                continue;
            Nodes origin{u};
            for (size_t i = 0; i < origin.size() && origin.size() <= SMALL; ++i)
                for (const Link &l : preds_[size_t(origin[i])])
                    if (std::find(origin.begin(), origin.end(), l.first) == origin.end()) origin.push_back(l.first);
            const bool alone = std::all_of(origin.begin() + 1, origin.end(), [&](int32_t v) {
                const auto &to = succs_[size_t(v)];
                return std::all_of(to.begin(), to.end(), [&](const Link &l) {
                    return std::find(origin.begin(), origin.end(), l.first) != origin.end();
                });
            });
            if (origin.size() > SMALL || !alone) continue;
            for (int32_t v : origin) doubtful[size_t(v)] = 1;
            found.push_back({u, std::move(origin)});
        }
        auto fed = [&](const Link &reader) {  // by something else too
            const auto &in = preds_[size_t(reader.first)];
            return std::any_of(in.begin(), in.end(), [&](const Link &l) { return !doubtful[size_t(l.first)]; });
        };
        std::vector<char> chosen(found.size());
        for (size_t k = 0; k < found.size(); ++k) {
            const auto &readers = succs_[size_t(found[k].first)];
            chosen[k] = std::all_of(readers.begin(), readers.end(), fed);
        }
        for (size_t k = 0; k < found.size(); ++k) {
            if (!chosen[k]) continue;
            const int32_t u = found[k].first;
            for (int32_t v : found[k].second) side_[size_t(v)] = 1;
            for (const Link &reader : succs_[size_t(u)]) {
                auto &in = preds_[size_t(reader.first)];
                aside_[size_t(reader.first)].push_back({u, reader.second});
                in.erase(std::find_if(in.begin(), in.end(), [u](const Link &l) { return l.first == u; }));
            }
            succs_[size_t(u)].clear();
        }
    }

    const uint64_t *content_;
    std::vector<int32_t> place_;
    int64_t spent_ = 0;
};

}  // namespace modelkeeper
