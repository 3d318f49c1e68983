// The native module: what each of its functions is for is said in src/modelkeeper/_native.pyi.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "colours.hpp"
#include "matching.hpp"

namespace nb = nanobind;
using Labels = nb::ndarray<const uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Numbers = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

static nb::ndarray<nb::numpy, uint64_t, nb::ndim<1>> colours(Labels nodes, Numbers offsets, Numbers sources,
                                                            Labels edges, int64_t budget) {
    const size_t n = nodes.size();
    if (offsets.size() != n + 1 || sources.size() != edges.size() || offsets.data()[0] != 0 ||
        size_t(offsets.data()[n]) != sources.size())
        throw nb::value_error("offsets, sources and edges do not describe one graph");
    for (size_t v = 0; v < n; ++v) {
        if (offsets.data()[v + 1] < offsets.data()[v]) throw nb::value_error("offsets must not fall");
        for (int32_t e = offsets.data()[v]; e < offsets.data()[v + 1]; ++e)
            if (sources.data()[e] < 0 || size_t(sources.data()[e]) >= v)
                throw nb::value_error("an edge must come from an earlier node");
    }
    auto *result = new uint64_t[n];
    nb::capsule owner(result, [](void *p) noexcept { delete[] static_cast<uint64_t *>(p); });
    {
        nb::gil_scoped_release release;
        modelkeeper::Dag dag{n, nodes.data(), offsets.data(), sources.data(), edges.data()};
        modelkeeper::colours(dag, budget, result);
    }
    return nb::ndarray<nb::numpy, uint64_t, nb::ndim<1>>(result, {n}, owner);
}

NB_MODULE(_native, m) {
    m.def("colours", &colours, nb::arg("nodes"), nb::arg("offsets"), nb::arg("sources"), nb::arg("edges"),
          nb::arg("budget"));
    modelkeeper::bind_matching(m);
}
