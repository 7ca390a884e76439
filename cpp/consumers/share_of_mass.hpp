// Where the best of many items reach a share of their mass, without a sort of them all: a pass adds masses by buckets of the value, a
// second one lists the bucket in which the share is reached, and only that is sorted.
// It knows values, ids and masses; it refuses to know what they are of.
//
// The order of additions: a bucket's masses by ascending id, buckets by descending value, then the items of the bucket one by one.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "consumers/masses.hpp"
#include "core/cut_off.hpp"

namespace lmhead {

class ShareOfMass {
 public:
  // An item is kept while the mass of those before it (value descending, then id ascending) is less than `share` of `total`; returns the
  // last one kept, or what keeps all. None is above `high`; those below `low` are certainly not kept.
  // Items come by ascending id, some at a time: `scan(visit)` calls visit(values, masses, n), `look(visit)` visit(values, y, first, n), where
  // y are the logits that `masses` weighs (null: all have the mass 1) and `id_of(first + i)` is an id. A value of -inf: no item.
  template <class Scan, class Look, class IdOf>
  CutOff<double> find(const Scan& scan, const Look& look, const IdOf& id_of, Masses* masses, double low, double high, double total, double share) {
    Buckets buckets(low, high);
    masses_.assign(kBuckets + 1, 0.0);
    int32_t places[Masses::kMost];
    scan([&](const double* values, const double* of, int64_t n) {
      buckets.of(values, n, places);
      for (int64_t i = 0; i < n; ++i) masses_[static_cast<size_t>(places[i])] += of[i];
    });
    double before = 0;
    size_t chosen = crossing(total, share, before);
    if (chosen == kBuckets) return {};
    items_.clear();
    look([&](const double* values, const auto* y, int64_t first, int64_t n) {
      buckets.of(values, n, places);
      for (int64_t i = 0; i < n; ++i)
        if (static_cast<size_t>(places[i]) == chosen) items_.push_back({values[i], id_of(first + i), double(y[i])});
    });
    weigh(masses);
    // Values that are crowded on a scale of their own are cut again; what resists that is sorted after all.
    for (int round = 0; round < 3 && items_.size() > kSorted; ++round) {
      const auto [least, greatest] = std::minmax_element(items_.begin(), items_.end(), [](const Item& a, const Item& b) { return a.value < b.value; });
      if (least->value == greatest->value) break;
      buckets = Buckets(least->value, greatest->value);
      masses_.assign(kBuckets + 1, 0.0);
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
    double mass;  // its logit, until it has been weighed
  };

  // Equal parts of [low, high], the highest first, and a last one for what is lower. Every step is monotone, so better items never have a
  // later bucket.
  class Buckets {
   public:
    Buckets(double low, double high)
        : half_high_(0.5 * high), scale_(std::min((double(kBuckets) - 0.5) / (0.5 * high - 0.5 * low), std::numeric_limits<double>::max())) {}
    // A loop that compilers make registers of, which know a minimum where single numbers get a branch.
    void of(const double* values, int64_t n, int32_t* places) const {
      for (int64_t i = 0; i < n; ++i) {
        const double place = (half_high_ - 0.5 * values[i]) * scale_;
        places[i] = static_cast<int32_t>(place < double(kBuckets) ? place : double(kBuckets));
      }
    }
    size_t of(double value) const {
      int32_t place;
      of(&value, 1, &place);
      return static_cast<size_t>(place);
    }

   private:
    double half_high_, scale_;
  };

  void weigh(Masses* masses) {
    double y[Masses::kMost];
    for (size_t first = 0; first < items_.size(); first += Masses::kMost) {
      const size_t n = std::min<size_t>(Masses::kMost, items_.size() - first);
      for (size_t i = 0; i < n; ++i) y[i] = items_[first + i].mass;
      const double* of = masses ? masses->of(y, static_cast<int64_t>(n)) : nullptr;
      for (size_t i = 0; i < n; ++i) items_[first + i].mass = of ? of[i] : 1;
    }
  }

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
