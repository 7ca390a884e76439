#include "core/allowed.hpp"

namespace lmhead {

Allowed::Allowed(int64_t n_ids, std::vector<uint32_t> words, bool shared) : n_ids_(n_ids), shared_(shared) { keep(std::move(words), true); }

Allowed::Allowed(int64_t n_ids, std::vector<uint32_t> words, bool shared, const std::vector<int64_t>& vocab_ids)
    : n_ids_(n_ids), shared_(shared) {
  const bool every_id = static_cast<int64_t>(vocab_ids.size()) == n_ids;
  if (!every_id) {
    std::vector<Existing> exists(static_cast<size_t>(n_words()));
    for (const int64_t id : vocab_ids) exists[static_cast<size_t>(id / kWordIds)].bits |= uint32_t{1} << id % kWordIds;
    for (size_t w = 1; w < exists.size(); ++w) exists[w].before = exists[w - 1].before + count_bits(exists[w - 1].bits);
    for (size_t i = 0; i < words.size();)
      for (size_t w = 0; w < exists.size(); ++w) words[i++] &= exists[w].bits;
    exists_ = std::make_shared<const std::vector<Existing>>(std::move(exists));
  }
  keep(std::move(words), every_id);
}

void Allowed::keep(std::vector<uint32_t> words, bool everything_is_all) {
  const size_t per_row = static_cast<size_t>(n_words());
  const uint32_t last = n_ids_ % kWordIds == 0 ? ~uint32_t{0} : (uint32_t{1} << n_ids_ % kWordIds) - 1;
  std::vector<int64_t> counts;
  bool everything = true;
  for (size_t first = 0; first < words.size(); first += per_row) {
    words[first + per_row - 1] &= last;
    int64_t count = 0;
    for (size_t w = 0; w < per_row; ++w) count += count_bits(words[first + w]);
    everything &= count == n_ids_;
    counts.push_back(count);
  }
  if (everything && everything_is_all) return;
  sets_ = std::make_shared<const std::vector<uint32_t>>(std::move(words));
  counts_ = std::make_shared<const std::vector<int64_t>>(std::move(counts));
}

Allowed Allowed::some_rows(const std::vector<int64_t>& rows) const {
  Allowed some = *this;
  if (shared_) return some;
  some.rows_.clear();
  for (const int64_t row : rows) some.rows_.push_back(set_of(row));
  return some;
}

}  // namespace lmhead
