// Where does scratch memory come from, so that none is allocated in an inner loop?
//
// From blocks that are kept: taking some is moving a mark forward, giving it back is moving it back again.
#pragma once
#include <algorithm>
#include <cstddef>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

namespace modelkeeper {

// Scratch memory that is given back in the reverse order of asking.
class Arena {
  public:
    using Mark = std::pair<size_t, size_t>;
    Mark mark() const { return {block_, top_}; }
    void release(Mark mark) { std::tie(block_, top_) = mark; }

    // Begin anew; what one huge pair needed is not kept for ever.
    void reset(size_t keep) {
        size_t held = 0;
        for (const auto &block : blocks_) held += block.second;
        if (held > keep) blocks_.clear();
        block_ = top_ = 0;
    }

    template <class T> T *take(size_t count) {
        const size_t bytes = (count * sizeof(T) + 63) & ~size_t(63);
        while (block_ < blocks_.size() && top_ + bytes > blocks_[block_].second) ++block_, top_ = 0;
        if (block_ == blocks_.size()) {
            const size_t size = std::max(bytes, size_t(1) << 20);
            blocks_.emplace_back(std::unique_ptr<char[]>(new char[size]), size);
            top_ = 0;
        }
        char *at = blocks_[block_].first.get() + top_;
        top_ += bytes;
        return reinterpret_cast<T *>(at);
    }

  private:
    std::vector<std::pair<std::unique_ptr<char[]>, size_t>> blocks_;
    size_t block_ = 0, top_ = 0;
};

}  // namespace modelkeeper
