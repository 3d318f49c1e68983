// How are many bytes moved, or looked through, as fast as memory allows?
//
// Copies are made by all threads, in parts that they take in turn; and what no cache could hold is written past
// the caches, so that memory is not read where it is only to be overwritten.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "floats.hpp"

namespace modelkeeper {

constexpr int64_t LARGE = 1 << 20;  // bytes: more than the nearer caches hold

// Runs work(0), work(1), .. at once, on so many threads, and waits for all of them.
template <class Work> void together(size_t threads, Work work) {
    std::vector<std::thread> helpers;
    helpers.reserve(threads);
    try {
        for (size_t t = 1; t < threads; ++t) helpers.emplace_back(work, t);
    } catch (const std::system_error &) {
        // The system gives no more threads: those there are do the work.
    }
    work(size_t(0));
    for (std::thread &helper : helpers) helper.join();
}

// Copy to memory that no cache holds, or to memory that is near.
inline void put(void *to, const void *from, size_t bytes, bool past_caches) {
    char *out = static_cast<char *>(to);
    const char *in = static_cast<const char *>(from);
#if defined(__SSE2__)
    if (past_caches) {
        const size_t head = std::min(bytes, size_t(-reinterpret_cast<uintptr_t>(out) & 63));
        std::memcpy(out, in, head);
        out += head, in += head, bytes -= head;
        for (; bytes >= 64; out += 64, in += 64, bytes -= 64)
            for (int part = 0; part < 64; part += 16)
                _mm_stream_si128(reinterpret_cast<__m128i *>(out + part),
                                 _mm_loadu_si128(reinterpret_cast<const __m128i *>(in + part)));
    }
#endif
    static_cast<void>(past_caches);
    for (; bytes >= 64; out += 64, in += 64, bytes -= 64) std::memcpy(out, in, 64);
    std::memcpy(out, in, bytes);
}

// What lies there will be read soon.
inline void prefetch(const void *where) {
#if defined(__GNUC__)
    __builtin_prefetch(where);
    asm volatile("" : : "r"(where));  // else GCC sees no effect, and leaves out whoever only does this
#else
    static_cast<void>(where);
#endif
}

// What was put past the caches is seen by other threads from here on.
inline void settle() {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

// Bytes that lie near each other, and where each of them goes: up to 16 that are moved at once.
struct Window {
    static constexpr int64_t WIDTH = 16;
    uint32_t source;  // in bytes
    uint32_t bytes;   // that are meant; what is written behind them is overwritten by the next window
    uint8_t from[WIDTH];
};

// Elements of up to 64 bytes of which some are kept, in their order.
struct Sieve {
    static constexpr int64_t WIDTH = 64;
    uint32_t source;  // in bytes
    uint32_t kept;    // one bit for each element
};

#ifdef MODELKEEPER_HALVES
inline bool moves_windows() {
    static const bool can = __builtin_cpu_supports("ssse3");
    return can;
}

__attribute__((target("ssse3"))) inline void move_windows(const Window *window, const Window *last, const char *base,
                                                          char *out) {
    for (; window < last; out += window++->bytes) {
        const __m128i near = _mm_loadu_si128(reinterpret_cast<const __m128i *>(base + window->source));
        const __m128i from = _mm_loadu_si128(reinterpret_cast<const __m128i *>(window->from));
        _mm_storeu_si128(reinterpret_cast<__m128i *>(out), _mm_shuffle_epi8(near, from));
    }
}

inline bool sifts() {
    static const bool can = __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512bw");
    return can;
}

// Elements of 2 or 4 bytes.
template <size_t itemsize>
__attribute__((target("avx512vbmi2,avx512bw,popcnt"))) inline void sift(const Sieve *sieve, const Sieve *last,
                                                                        const char *base, char *out) {
    for (; sieve < last; ++sieve) {
        const __m512i near = _mm512_loadu_si512(base + sieve->source);
        if constexpr (itemsize == 2)
            _mm512_storeu_si512(out, _mm512_maskz_compress_epi16(sieve->kept, near));
        else
            _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(__mmask16(sieve->kept), near));
        out += itemsize * size_t(_mm_popcnt_u32(sieve->kept));
    }
}
#else
inline bool moves_windows() { return false; }
inline void move_windows(const Window *, const Window *, const char *, char *) {}
inline bool sifts() { return false; }
template <size_t itemsize> inline void sift(const Sieve *, const Sieve *, const char *, char *) {}
#endif

struct Move {
    const char *from;
    char *to;
    size_t bytes;
};

// All of them; no two overlap.
inline void move_all(const std::vector<Move> &moves, size_t threads) {
    constexpr size_t part = size_t(LARGE);
    std::vector<size_t> begins{0};  // of each move, in parts
    size_t bytes = 0;
    for (const Move &move : moves) {
        begins.push_back(begins.back() + (move.bytes + part - 1) / part);
        bytes += move.bytes;
    }
    const bool past_caches = bytes > part;
    threads = std::clamp<size_t>(bytes / part, 1, threads);
    std::atomic<size_t> next{0};
    together(threads, [&](size_t) noexcept {
        for (size_t p = next++; p < begins.back(); p = next++) {
            const size_t number = size_t(std::upper_bound(begins.begin(), begins.end(), p) - begins.begin()) - 1;
            const Move &move = moves[number];
            const size_t begin = (p - begins[number]) * part;
            put(move.to + begin, move.from + begin, std::min(part, move.bytes - begin), past_caches);
        }
        settle();
    });
}

// Is any of these no number? Without a branch, so that loops over it run in vectors.
template <class Number>
MODELKEEPER_VECTORS bool any_nan(const typename Number::Stored *values, int64_t n) {
    typename Number::Flag found = 0;
    for (int64_t j = 0; j < n; ++j) found |= Number::nan(values[j]);
    return found != 0;
}

// By one thread: that is nearly as fast as memory, and more of them would have to be waited for.
template <class Number> bool holds_nan(const void *data, size_t count) {
    using Stored = typename Number::Stored;
    constexpr size_t part = (1 << 16) / sizeof(Stored);
    const Stored *values = static_cast<const Stored *>(data);
    for (size_t begin = 0; begin < count; begin += part)
        if (any_nan<Number>(values + begin, int64_t(std::min(part, count - begin)))) return true;
    return false;
}

}  // namespace modelkeeper
