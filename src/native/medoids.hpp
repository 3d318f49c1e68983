// Which k of n things stand best for all of them? k-medoids, by FasterPAM (Schubert and Rousseeuw, 2021).
//
// The first medoids are chosen greedily, each the one that lowers the sum of distances most (PAM's BUILD). Then
// each other thing in turn is tried in place of every medoid at once, in time n, and the best exchange is made if
// the sum falls; it ends when a whole round brings nothing. So no exchange of one medoid would lower the sum, and
// equal distances give equal medoids on any machine.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace modelkeeper {

class Medoids {
  public:
    // distance[i * n + j] is finite and not negative; 0 < k <= n.
    Medoids(const double *distance, size_t n, size_t k)
        : distance_(distance), n_(n), k_(k), nearest_(n), first_(n), second_(n), loss_(k) {}

    std::vector<int64_t> find() {
        build();
        if (k_ > 1 && k_ < n_) exchange();  // the first of BUILD is the best single one
        return std::vector<int64_t>(medoid_.begin(), medoid_.end());
    }

  private:
    double between(size_t i, size_t j) const { return distance_[i * n_ + j]; }

    void build() {
        std::fill(first_.begin(), first_.end(), std::numeric_limits<double>::infinity());
        std::vector<char> taken(n_, 0);
        while (medoid_.size() < k_) {
            size_t best = n_;
            double least = 0;
            for (size_t x = 0; x < n_; ++x) {
                if (taken[x]) continue;
                double sum = 0;
                for (size_t o = 0; o < n_; ++o) sum += std::min(first_[o], between(o, x));
                if (best == n_ || sum < least) best = x, least = sum;
            }
            taken[best] = 1;
            medoid_.push_back(best);
            for (size_t o = 0; o < n_; ++o) first_[o] = std::min(first_[o], between(o, best));
        }
    }

    // For each thing its medoid, the distances to it and to the second; for each medoid what its absence costs.
    void look() {
        std::fill(loss_.begin(), loss_.end(), 0.0);
        sum_ = 0;
        for (size_t o = 0; o < n_; ++o) {
            first_[o] = second_[o] = std::numeric_limits<double>::infinity();
            for (size_t m = 0; m < k_; ++m) {
                const double d = between(o, medoid_[m]);
                if (d < first_[o])
                    second_[o] = first_[o], first_[o] = d, nearest_[o] = m;
                else
                    second_[o] = std::min(second_[o], d);
            }
            loss_[nearest_[o]] += second_[o] - first_[o];
            sum_ += first_[o];
        }
    }

    void exchange() {
        look();
        std::vector<double> change(k_);
        for (size_t x = 0, idle = 0; idle < n_; x = (x + 1) % n_, ++idle) {
            if (std::find(medoid_.begin(), medoid_.end(), x) != medoid_.end()) continue;
            double gain = 0;  // of x beside all medoids
            change = loss_;   // of each medoid's absence, x being there
            for (size_t o = 0; o < n_; ++o) {
                const double d = between(o, x);
                if (d < first_[o])
                    gain += d - first_[o], change[nearest_[o]] += first_[o] - second_[o];
                else if (d < second_[o])
                    change[nearest_[o]] += d - second_[o];
            }
            const size_t m = size_t(std::min_element(change.begin(), change.end()) - change.begin());
            if (change[m] + gain >= -1e-12 * sum_) continue;  // what rounding makes is no gain
            medoid_[m] = x;
            look();
            idle = 0;
        }
    }

    const double *distance_;
    size_t n_, k_;
    std::vector<size_t> medoid_, nearest_;
    std::vector<double> first_, second_, loss_;
    double sum_ = 0;
};

}  // namespace modelkeeper
