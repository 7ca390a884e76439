// Where the best of many items reach a share of their mass, without a sort of them all: a pass adds masses by buckets of the value, a
// second one lists the bucket in which the share is reached, and only that is sorted.
// It knows values, ids and masses; it refuses to know what they are of.
//
// The order of additions: a bucket's masses by ascending id, buckets by descending value, then the items of the bucket one by one.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "core/cut_off.hpp"

namespace lmhead {

class ShareOfMass {
 public:
  // An item is kept while the mass of those before it (value descending, then id ascending) is less than `share` of `total`; returns the
  // last one kept. `scan(visit)` calls visit(value, id, mass) for every item by ascending id, the same ones each time; none is above `high`,
  // and those below `low` are certainly not kept.
  template <class Scan>
  CutOff<double> find(const Scan& scan, double low, double high, double total, double share) {
    Buckets buckets(low, high);
    masses_.assign(kBuckets, 0.0);
    scan([&](double value, int64_t, double mass) {
      if (value >= low) masses_[buckets.of(value)] += mass;
    });
    double before = 0;
    size_t chosen = crossing(total, share, before);
    if (chosen == kBuckets) return {};
    items_.clear();
    scan([&](double value, int64_t id, double mass) {
      if (value >= low && buckets.of(value) == chosen) items_.push_back({value, id, mass});
    });
    // Values that are crowded on a scale of their own are cut again; what resists that is sorted after all.
    for (int round = 0; round < 3 && items_.size() > kSorted; ++round) {
      const auto [least, greatest] = std::minmax_element(items_.begin(), items_.end(), [](const Item& a, const Item& b) { return a.value < b.value; });
      if (least->value == greatest->value) break;
      buckets = Buckets(least->value, greatest->value);
      masses_.assign(kBuckets, 0.0);
      for (const Item& item : items_) masses_[buckets.of(item.value)] += item.mass;
      double before_bucket = before;
      chosen = crossing(total, share, before_bucket);
      if (chosen == kBuckets) break;  // in another order of additions the share is not quite reached
      before = before_bucket;
      items_.erase(std::remove_if(items_.begin(), items_.end(), [&](const Item& item) { return buckets.of(item.value) != chosen; }), items_.end());
    }
    const auto better = [](const Item& a, const Item& b) { return a.value != b.value ? a.value > b.value : a.id < b.id; };
    if (!std::is_sorted(items_.begin(), items_.end(), better)) std::sort(items_.begin(), items_.end(), better);
    CutOff<double> last;
    for (const Item& item : items_) {
      if (!(before / total < share)) break;
      last = {item.value, item.id};
      before += item.mass;
    }
    return last;
  }

 private:
  static constexpr size_t kBuckets = 4096;  // 32 KiB of masses
  static constexpr size_t kSorted = 1024;   // items whose sort costs less than another round

  struct Item {
    double value;
    int64_t id;
    double mass;
  };

  // Equal parts of [low, high], the highest first. Every step is monotone, so better items never have a later bucket.
  class Buckets {
   public:
    Buckets(double low, double high)
        : half_high_(0.5 * high), scale_(std::min(double(kBuckets) / (0.5 * high - 0.5 * low), std::numeric_limits<double>::max())) {}
    size_t of(double value) const {
      const double place = (half_high_ - 0.5 * value) * scale_;
      return place < double(kBuckets) ? static_cast<size_t>(place) : kBuckets - 1;
    }

   private:
    double half_high_, scale_;
  };

  // The bucket in which the share is reached, and the mass before it.
  size_t crossing(double total, double share, double& before) const {
    for (size_t b = 0; b < kBuckets; ++b) {
      if (!((before + masses_[b]) / total < share)) return b;
      before += masses_[b];
    }
    return kBuckets;
  }

  std::vector<double> masses_;
  std::vector<Item> items_;
};

}  // namespace lmhead
