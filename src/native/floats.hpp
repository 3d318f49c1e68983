// How is a number of each floating-point type multiplied by a factor?
//
// Each type below names how its numbers are stored and scales one of them: fp32 and fp64 in double, the
// half types in float, rounded once to the nearest, ties to even. The conversions have selects in the
// place of branches, so that compilers turn loops over them into vector code on any machine.
#pragma once
#include <cstdint>
#include <cstring>

namespace modelkeeper {

inline uint32_t bits_of(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float float_of(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

struct Float64 {
    using Stored = double;
    using Factor = double;
    static constexpr bool scales = true;
    static Stored scale(Stored value, Factor factor) { return value * factor; }
};

struct Float32 {
    using Stored = float;
    using Factor = double;
    static constexpr bool scales = true;
    static Stored scale(Stored value, Factor factor) { return float(double(value) * factor); }
};

struct BFloat16 {  // the upper half of a float
    using Stored = uint16_t;
    using Factor = float;
    static constexpr bool scales = true;
    static float widen(Stored value) { return float_of(uint32_t(value) << 16); }
    static Stored narrow(float value) {
        const uint32_t bits = bits_of(value);
        const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
        const uint32_t nan = (bits >> 16) | 0x40;  // quiet, so that no NaN is rounded to infinity
        return Stored((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
    }
    static Stored scale(Stored value, Factor factor) { return narrow(widen(value) * factor); }
};

struct Float16 {  // 5 bits of exponent with bias 15, 10 of fraction
    using Stored = uint16_t;
    using Factor = float;
    static constexpr bool scales = true;
    static float widen(Stored value) {
        constexpr uint32_t rebias = 112u << 23;  // from bias 15 to bias 127
        const uint32_t sign = uint32_t(value & 0x8000) << 16;
        const uint32_t bits = uint32_t(value & 0x7fff) << 13;
        const uint32_t normal = bits + rebias;
        const uint32_t special = bits + 2 * rebias;  // infinity and NaN: all ones stay all ones
        // A fraction without a leading one: give it one, then take that away, and the float normalises itself.
        const uint32_t tiny = bits_of(float_of(bits + (113u << 23)) - float_of(113u << 23));
        return float_of(sign | (bits >= (31u << 23) ? special : bits < (1u << 23) ? tiny : normal));
    }
    static Stored narrow(float value) {
        const uint32_t bits = bits_of(value), sign = (bits >> 16) & 0x8000, size = bits & 0x7fffffff;
        const uint32_t normal = (size - (112u << 23) + 0xfff + ((size >> 13) & 1)) >> 13;
        // Below 2^-14 halves lie 2^-24 apart, as floats do from 0.5 on: adding 0.5 rounds to them.
        const uint32_t tiny = bits_of(float_of(size) + 0.5f) - bits_of(0.5f);
        const uint32_t finite = size < (113u << 23) ? tiny : normal;
        const uint32_t large = size > 0x7f800000 ? 0x7e00u : 0x7c00u;  // NaN, infinity
        return Stored(sign | (size >= 0x477ff000 ? large : finite));   // from 65520 on, infinity is nearest
    }
    static Stored scale(Stored value, Factor factor) { return narrow(widen(value) * factor); }
};

// Anything else is moved, never scaled.
template <class Number> struct Bits {
    using Stored = Number;
    using Factor = double;
    static constexpr bool scales = false;
};

struct Bits128 {
    uint64_t low, high;
};

}  // namespace modelkeeper
