// The matching half of the native module: arrays in, arrays out, the GIL released in between.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <string>
#include <tuple>
#include <vector>

#include "decompose.hpp"
#include "search.hpp"

namespace modelkeeper {

namespace nb = nanobind;
template <class T> using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T> using In2 = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T> using Out = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

template <class T> Out<T> give(const std::vector<T> &values) {
    auto *copy = new T[values.size()];
    std::copy(values.begin(), values.end(), copy);
    return Out<T>(copy, {values.size()}, nb::capsule(copy, [](void *p) noexcept { delete[] static_cast<T *>(p); }));
}

inline void demand(bool holds, const char *problem) {
    if (!holds) throw nb::value_error(problem);
}

inline const Token *tokens(const In2<int64_t> &array) {
    demand(array.size() == 0 || array.shape(1) == Token::FIELDS, "a token has 16 fields");
    return reinterpret_cast<const Token *>(array.data());
}

inline Knobs knobs(const In<int64_t> &array) {
    demand(array.size() == 4, "there are four knobs");
    return {array.data()[0], array.data()[1], array.data()[2], array.data()[3]};
}

inline std::tuple<Out<uint16_t>, Out<int32_t>, Out<int32_t>> decompose(In<uint64_t> content, In<int32_t> rank, In<int32_t> token,
                                                                       In<int32_t> offset, In<int32_t> source, In<uint16_t> label) {
    const size_t n = content.size();
    demand(rank.size() == n && token.size() == n && offset.size() == n + 1 && source.size() == label.size() &&
               offset.data()[0] == 0 && size_t(offset.data()[n]) == source.size(),
           "the arrays do not describe one graph");
    for (size_t v = 0; v < n; ++v) {
        demand(offset.data()[v] <= offset.data()[v + 1], "offsets must not fall");
        for (int32_t e = offset.data()[v]; e < offset.data()[v + 1]; ++e)
            demand(source.data()[e] >= 0 && size_t(source.data()[e]) < v, "an edge must come from an earlier node");
    }
    std::vector<uint16_t> form;
    std::vector<int32_t> nodes, used;
    {
        nb::gil_scoped_release release;
        Decomposition made(n, content.data(), rank.data(), token.data(), offset.data(), source.data(), label.data());
        form = made.form();
        nodes = std::move(made.nodes);
        used = std::move(made.tokens);
    }
    return {give(form), give(nodes), give(used)};
}

inline bool valid_form(In<uint16_t> words) { return Form::valid(words.data(), words.size()); }

inline nb::ndarray<nb::numpy, int32_t, nb::ndim<2>> rewards(In2<int64_t> parents, In2<int64_t> child, In<int64_t> settings, int threads) {
    const Token *const a = tokens(parents), *const b = tokens(child);
    const size_t n = parents.shape(0), k = child.shape(0);
    const Knobs knob = knobs(settings);
    auto *table = new int32_t[n * k];
    nb::capsule owner(table, [](void *p) noexcept { delete[] static_cast<int32_t *>(p); });
    {
        nb::gil_scoped_release release;
        spread(int64_t(n), 512, threads, [&] {
            return [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i)
                    for (size_t j = 0; j < k; ++j) table[size_t(i) * k + j] = reward(a[i], b[j], knob);
            };
        });
    }
    return {table, {n, k}, owner};
}

inline Out<int64_t> bounds(In2<int64_t> parents, In2<int64_t> child, In<int32_t> counts, In2<int32_t> table, In<int64_t> offset,
                           In<int32_t> token, In<uint16_t> count, In<int32_t> which, bool fine, int threads) {
    const int64_t models = int64_t(offset.size()) - 1;
    const int32_t k = int32_t(child.shape(0));
    demand(int64_t(counts.size()) == k && table.shape(0) == parents.shape(0) && int64_t(table.shape(1)) == k, "the table fits neither side");
    demand(models >= 0 && token.size() == count.size() && size_t(offset.data()[models]) <= token.size(), "the histograms do not fit");
    const int64_t n = int64_t(which.size());
    for (int64_t i = 0; i < n; ++i) demand(which.data()[i] >= 0 && which.data()[i] < models, "no such model");
    std::vector<int64_t> result(static_cast<size_t>(n));
    {
        nb::gil_scoped_release release;
        const Bounds bound(tokens(parents), int64_t(parents.shape(0)), tokens(child), k, counts.data(), table.data());
        const Histograms all{offset.data(), token.data(), count.data()};
        spread(n, 1024, threads, [&] {
            return [&, best = std::vector<int32_t>(size_t(k)), shared = std::vector<int32_t>(size_t(k))](int64_t begin, int64_t end) mutable {
                for (int64_t i = begin; i < end; ++i)
                    result[size_t(i)] = fine ? bound.fine(all, which.data()[i], best.data(), shared.data()) : bound.coarse(all, which.data()[i]);
            };
        });
    }
    return give(result);
}

// Scores (layers + edges) of the models `which` of a store of forms against one child.
inline Out<int64_t> align_many(In<uint16_t> words, In<int64_t> form_at, In<int64_t> offset, In<int32_t> token, In2<int32_t> table,
                               In<int32_t> which, In<uint16_t> child, In<int64_t> settings, int threads) {
    demand(Form::valid(child.data(), child.size()), "the child is no form");
    const Form c(child.data());
    demand(table.shape(1) == c.tokens && form_at.size() + 1 == offset.size(), "the table does not fit the child");
    const int64_t n = int64_t(which.size());
    for (int64_t i = 0; i < n; ++i) {
        const int32_t at = which.data()[i];
        demand(at >= 0 && size_t(at) < form_at.size(), "no such model");
        const int64_t from = form_at.data()[at];
        demand(from >= 0 && size_t(from) + Form::HEADER <= words.size() && size_t(from) + Form::words(words.data() + from) <= words.size(), "a form leaves its store");
        demand(words.data()[from + 1] == offset.data()[at + 1] - offset.data()[at], "a form does not fit its tokens");
    }
    const Knobs knob = knobs(settings);
    std::vector<int64_t> result(static_cast<size_t>(n));
    {
        nb::gil_scoped_release release;
        spread(n, 4, threads, [&] {
            return [&, aligner = std::make_shared<Aligner>(), rows = std::vector<const int32_t *>()](int64_t begin, int64_t end) mutable {
                for (int64_t i = begin; i < end; ++i) {
                    const int32_t at = which.data()[i];
                    const Form p(words.data() + form_at.data()[at]);
                    rows.clear();
                    for (int64_t e = offset.data()[at]; e < offset.data()[at + 1]; ++e)
                        rows.push_back(table.data() + int64_t(token.data()[e]) * c.tokens);
                    const Score score = aligner->align(p, c, rows.data(), knob);
                    result[size_t(i)] = score.layers + score.edges;
                }
            };
        });
    }
    return give(result);
}

// One pair: the scores of layers and of edges, and the matched elements, parent's and child's in turn.
inline std::tuple<int64_t, int64_t, Out<int32_t>> align_pair(In<uint16_t> parent, In<uint16_t> child, In2<int32_t> table, In<int64_t> settings) {
    demand(Form::valid(parent.data(), parent.size()) && Form::valid(child.data(), child.size()), "no form");
    const Form p(parent.data()), c(child.data());
    demand(table.shape(0) == p.tokens && table.shape(1) == c.tokens, "the table fits neither side");
    const Knobs knob = knobs(settings);
    std::vector<int32_t> found;
    Score score;
    {
        nb::gil_scoped_release release;
        std::vector<const int32_t *> rows;
        for (size_t t = 0; t < p.tokens; ++t) rows.push_back(table.data() + t * c.tokens);
        Aligner aligner;
        score = aligner.align(p, c, rows.data(), knob);
        std::sort(aligner.pairs.begin(), aligner.pairs.end());
        for (const auto &[x, y] : aligner.pairs) found.push_back(x), found.push_back(y);
    }
    return {score.layers, score.edges, give(found)};
}

inline void bind_matching(nb::module_ &m) {
    m.def("decompose", &decompose, nb::arg("content"), nb::arg("rank"), nb::arg("token"), nb::arg("offsets"), nb::arg("sources"), nb::arg("labels"));
    m.def("valid_form", &valid_form, nb::arg("words"));
    m.def("rewards", &rewards, nb::arg("parents"), nb::arg("child"), nb::arg("knobs"), nb::arg("threads"));
    m.def("bounds", &bounds, nb::arg("parents"), nb::arg("child"), nb::arg("counts"), nb::arg("rewards"), nb::arg("offsets"), nb::arg("tokens"),
          nb::arg("token_counts"), nb::arg("which"), nb::arg("fine"), nb::arg("threads"));
    m.def("align_many", &align_many, nb::arg("words"), nb::arg("forms"), nb::arg("offsets"), nb::arg("tokens"), nb::arg("rewards"),
          nb::arg("which"), nb::arg("child"), nb::arg("knobs"), nb::arg("threads"));
    m.def("align_pair", &align_pair, nb::arg("parent"), nb::arg("child"), nb::arg("rewards"), nb::arg("knobs"));
}

}  // namespace modelkeeper
