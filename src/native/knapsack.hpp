// Which of a few hundred things, together, are worth most and fit, where greed and prices did not decide?
//
// Dynamic programming over choices that are not dominated (no other is worth as much in as little room) and that may
// still reach what is enough. Choices lie by the room they use, so that those without the next thing and those with it
// are two sorted rows, merged in one pass. Of each step it is remembered where its choices came from.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace modelkeeper {

class Knapsack {
  public:
    static constexpr int64_t BEYOND = int64_t(1) << 62;  // more than all room; sizes and room are less than half of it

    // Things in the order in which they are decided; ahead[n] is what those from n on can add to the bound at most.
    Knapsack(const double *worth, const int64_t *size, const double *ahead, size_t n, int64_t room, double price,
             double enough, double least)
        : worth_(worth), size_(size), ahead_(ahead), n_(n), room_(room), price_(price), enough_(enough),
          at_most_(least) {}

    // Is each thing taken? Nothing is, where no choice reaches what is enough.
    std::vector<uint8_t> find(int64_t most, int64_t fewest) {
        used_.assign(1, 0), got_.assign(1, 0.0);
        begins_.assign(1, 0);
        int64_t looked_at = 0;
        for (size_t step = 0; step < n_; ++step) {
            before_.push_back(used_.size());
            extend(step);
            const int64_t left = std::max<int64_t>(0, most - looked_at) / int64_t(n_ - step);
            prune(size_t(std::max(fewest, left)));
            if (next_used_.empty()) return std::vector<uint8_t>(n_, 0);
            looked_at += int64_t(next_used_.size());
            used_.swap(next_used_), got_.swap(next_got_);
            origin_.insert(origin_.end(), from_.begin(), from_.end());
            begins_.push_back(origin_.size());
        }
        return walk_back();
    }

    // No choice is worth more.
    double at_most() const { return at_most_; }

  private:
    // All choices with and without a thing, but for those that are dominated or cannot reach what is enough. Both rows
    // end where all room does, so that the loop needs no look at their ends, and no branch that depends on the data.
    void extend(size_t step) {
        const int64_t size = size_[step];
        const double worth = worth_[step], ahead = ahead_[step + 1];
        const size_t old = used_.size();
        const size_t fits = size_t(std::upper_bound(used_.begin(), used_.end(), room_ - size) - used_.begin());
        next_used_.resize(old + fits), next_got_.resize(old + fits), hope_.resize(old + fits), from_.resize(old + fits);
        used_.push_back(BEYOND), got_.push_back(0.0);
        double highest = -1;
        size_t without = 0, with = 0, kept = 0;
        for (size_t n = 0; n < old + fits; ++n) {
            const int64_t more = used_[with] + size, same = used_[without];
            const double more_got = got_[with] + worth, same_got = got_[without];
            const bool take = (more < same) | ((more == same) & (more_got > same_got));
            const int64_t use = take ? more : same;
            const double get = take ? more_got : same_got;
            const double hope = get + price_ * double(room_ - use) + ahead;
            next_used_[kept] = use, next_got_[kept] = get, hope_[kept] = hope;
            from_[kept] = int32_t(take ? old + with : without);
            kept += size_t((get > highest) & (hope >= enough_));
            highest = get > highest ? get : highest;
            with += take, without += !take;
        }
        next_used_.resize(kept), next_got_.resize(kept), hope_.resize(kept), from_.resize(kept);
    }

    // No more choices than are allowed: the most promising; of equals those that use less room.
    void prune(size_t allowed) {
        if (next_used_.size() <= allowed) return;
        ranked_ = hope_;
        std::nth_element(ranked_.begin(), ranked_.begin() + int64_t(allowed), ranked_.end(), std::greater<double>());
        const double first_out = ranked_[allowed];
        at_most_ = std::max(at_most_, first_out);
        size_t better = 0;
        for (double hope : hope_) better += hope > first_out;
        size_t equals = allowed - better, kept = 0;
        for (size_t n = 0; n < hope_.size(); ++n) {
            if (hope_[n] < first_out || (hope_[n] == first_out && !equals)) continue;
            equals -= hope_[n] == first_out;
            next_used_[kept] = next_used_[n], next_got_[kept] = next_got_[n], from_[kept] = from_[n];
            ++kept;
        }
        next_used_.resize(kept), next_got_.resize(kept), from_.resize(kept);
    }

    std::vector<uint8_t> walk_back() {
        size_t place = size_t(std::max_element(got_.begin(), got_.end()) - got_.begin());
        at_most_ = std::max(at_most_, got_[place]);
        std::vector<uint8_t> chosen(n_, 0);
        for (size_t step = n_; step-- > 0;) {
            place = size_t(origin_[begins_[step] + place]);
            chosen[step] = place >= before_[step];  // places from there on are choices with this thing added
            if (chosen[step]) place -= before_[step];
        }
        return chosen;
    }

    const double *worth_;
    const int64_t *size_;
    const double *ahead_;
    size_t n_;
    int64_t room_;
    double price_, enough_, at_most_;
    std::vector<int64_t> used_, next_used_;
    std::vector<double> got_, next_got_, hope_, ranked_;
    std::vector<int32_t> from_, origin_;
    std::vector<size_t> begins_, before_;
};

}  // namespace modelkeeper
