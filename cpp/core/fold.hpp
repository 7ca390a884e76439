// The fold over tiles of logits that every fused operation is: rows of a block are prepared once, runs of ids are shared out
// among the workers, each tile is adjusted and handed to the consumer. Where not every id is allowed, tiles hold -inf in the other places,
// and no row of the weight is read for them.
//
// A consumer has
//   begin(first_row, n_rows)      rows of a block are about to come (one thread)
//   place(first_row, first_id)    null, or where the tile's logits shall be computed: {T*, stride}
//   tile(worker, tile)            from any worker; a worker sees the ids of a row in ascending order
//   finish(first_row, n_rows)     all tiles of the block have been seen (one thread)
//   bytes_per_row()               what it keeps of a row between the tiles
// and may have
//   kAllowedOnly = true           tiles of nothing but disallowed ids need not come
#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "core/allowed_tiles.hpp"
#include "core/parallel.hpp"
#include "core/projection.hpp"
#include "core/tile.hpp"

namespace lmhead {

template <class T>
struct Place {
  T* logits = nullptr;
  ptrdiff_t stride = 0;
};

// How a fold cuts its rows and ids into tasks.
struct FoldPlan {
  int64_t rows_per_block;  // rows prepared together; partial results of a consumer are kept for so many
  int64_t rows_per_task;
  int64_t ids_per_task;    // whole blocks of kBlockIds

  FoldPlan(const Projection& p, int64_t n_ids, int64_t kept_bytes_per_row, int threads) {
    const int64_t n_blocks = std::max<int64_t>(1, ceil_div(n_ids, kBlockIds));
    // 256 rows give each weight 128 flops a byte of float32, far above what memory needs; narrower heads take more rows, up to
    // 4 MiB of prepared rows. A consumer keeps at most 64 MiB, or what 16 rows need.
    const int64_t by_width = 4 * 1024 * 1024 / std::max<int64_t>(1, p.hidden_stride());
    const int64_t by_kept = 64 * 1024 * 1024 / std::max<int64_t>(1, kept_bytes_per_row);
    rows_per_block = std::max<int64_t>(16, std::min(std::max<int64_t>(256, by_width), by_kept));
    const int64_t rows = std::min(rows_per_block, p.n_rows());
    ids_per_task = kBlockIds * std::max<int64_t>(1, blocks_per_task(p, rows, n_blocks, threads));
    rows_per_task = std::min<int64_t>(rows, 256);
    share_rows(p, rows, ceil_div(n_ids, ids_per_task), threads);
  }

  // Few runs of ids: share the rows out too, in multiples of every register tile (3 and 4 rows).
  void share_rows(const Projection& p, int64_t rows, int64_t n_runs, int threads) {
    if (threads > 1 && n_runs * ceil_div(rows, rows_per_task) < 4 * threads && p.path() != WeightPath::packed)
      rows_per_task = std::min(rows_per_task, std::max<int64_t>(12, round_up(ceil_div(rows, 4 * threads), 12)));
  }

 private:
  // 0 stands for 1: fewer blocks than the threads could share.
  static int64_t blocks_per_task(const Projection& p, int64_t rows, int64_t n_blocks, int threads) {
    switch (p.path()) {
      case WeightPath::packed:
        return std::min<int64_t>(kBlocksPerRun, n_blocks / (4 * threads));
      case WeightPath::columns:
        // A (D, V) weight is read in runs of one id range: 16 blocks make them 16 KiB of float32, and the sums of a task (256 KiB)
        // still fit L2.
        return std::min<int64_t>(16, n_blocks / (4 * threads));
      case WeightPath::direct:
        break;
    }
    if (rows > 16) return 1;
    // Tasks of about 1 MiB of weights or more, but eight a thread, so that a late thread costs little.
    const int64_t block_bytes = kBlockIds * std::max<int64_t>(1, p.width()) * 4;
    return std::min<int64_t>(ceil_div(1024 * 1024, block_bytes), n_blocks / (8 * threads));
  }
};

template <class T>
struct FoldScratch {
  ProjectionScratch projection;
  Buffer<T> tile;
};

template <class Consumer, class = void>
struct AllowedOnly : std::false_type {};
template <class Consumer>
struct AllowedOnly<Consumer, std::enable_if_t<Consumer::kAllowedOnly>> : std::true_type {};

template <class T, class Consumer>
class Fold {
 public:
  Fold(const KernelTable& table, const Projection& p, const Adjust<T>& adjust, Consumer& consumer, int threads, const Allowed& allowed)
      : table_(table), p_(p), adjust_(adjust), consumer_(consumer), allowed_(allowed), n_ids_(allowed.all() ? p.n_ids() : allowed.n_ids()),
        threads_(double(p.n_rows()) * double(n_ids_) * double(p.width()) < kSerialWork ? 1 : threads),
        plan_(p, n_ids_, consumer.bytes_per_row(), threads_), scratch_(static_cast<size_t>(threads_)) {
    if (!allowed.all())
      for (int i = 0; i < threads_; ++i) tiles_.emplace_back(table, p, adjust, allowed);
  }

  void run() {
    prepared_.reserve(std::min(plan_.rows_per_block, p_.n_rows()) * p_.hidden_stride());
    for (int64_t row = 0; row < p_.n_rows(); row += plan_.rows_per_block) {
      const int64_t rows = std::min(plan_.rows_per_block, p_.n_rows() - row);
      prepare(row, rows);
      consumer_.begin(row, rows);
      if (allowed_.all()) every_id(row, rows);
      else allowed_ids(row, rows);
      consumer_.finish(row, rows);
    }
  }

 private:
  // Preparing is a copy of N x D against N x V x D multiplications; 16 rows a task.
  void prepare(int64_t row0, int64_t rows) {
    run_tasks(rows >= 64 ? threads_ : 1, ceil_div(rows, 16), [&](int worker, int64_t task) {
      for (int64_t r = 16 * task; r < std::min(rows, 16 * (task + 1)); ++r)
        p_.prepare_row(row0 + r, prepared(r), scratch_[static_cast<size_t>(worker)].projection.temporary);
    });
  }

  void every_id(int64_t row0, int64_t rows) {
    const int64_t n_runs = ceil_div(n_ids_, plan_.ids_per_task);
    run_tasks(threads_, n_runs * ceil_div(rows, plan_.rows_per_task), [&](int worker, int64_t task) {
      FoldScratch<T>& mine = scratch_[static_cast<size_t>(worker)];
      const int64_t r = task / n_runs * plan_.rows_per_task, id = task % n_runs * plan_.ids_per_task;
      const Tile<T> tile = make_tile(mine, row0 + r, std::min(plan_.rows_per_task, rows - r), id, n_ids_ - id);
      p_.project(prepared(r), tile.n_rows, id, tile.n_ids, tile.logits, tile.stride, mine.projection);
      adjust_(table_, tile);
      consumer_.tile(worker, tile);
    });
  }

  // A task has as many allowed ids as it would have ids, and so often more than one tile.
  void allowed_ids(int64_t row0, int64_t rows) {
    cut_.cut(allowed_, row0, rows, plan_.ids_per_task, p_.width(), threads_);
    const int64_t n_runs = cut_.n_tasks();
    FoldPlan plan = plan_;
    plan.share_rows(p_, rows, n_runs, threads_);
    run_tasks(cut_.total_cost() < kSerialWork ? 1 : threads_, n_runs * ceil_div(rows, plan.rows_per_task), [&](int worker, int64_t task) {
      FoldScratch<T>& mine = scratch_[static_cast<size_t>(worker)];
      AllowedTiles<T>& tiles = tiles_[static_cast<size_t>(worker)];
      const int64_t r = task / n_runs * plan.rows_per_task, n_rows = std::min(plan.rows_per_task, rows - r);
      const int64_t first = cut_.first_id(task % n_runs), end = first + cut_.n_ids(task % n_runs);
      tiles.compute(prepared(r), row0 + r, n_rows, first, end - first, mine.projection);
      for (int64_t id = first; id < end; id += plan.ids_per_task) {
        if (AllowedOnly<Consumer>::value && tiles.nothing(id, std::min(plan.ids_per_task, end - id))) continue;
        const Tile<T> tile = make_tile(mine, row0 + r, n_rows, id, end - id);
        tiles.put(tile, mine.projection);
        consumer_.tile(worker, tile);
      }
    });
  }

  Tile<T> make_tile(FoldScratch<T>& mine, int64_t row, int64_t n_rows, int64_t id, int64_t n_ids) {
    const Place<T> place = consumer_.place(row, id);
    T* logits = place.logits ? place.logits : mine.tile.reserve(plan_.rows_per_task * plan_.ids_per_task);
    return {logits, place.logits ? place.stride : plan_.ids_per_task, row, n_rows, id, std::min(plan_.ids_per_task, n_ids)};
  }

  char* prepared(int64_t row) const { return prepared_.get() + row * p_.hidden_stride(); }

  const KernelTable& table_;
  const Projection& p_;
  const Adjust<T>& adjust_;
  Consumer& consumer_;
  const Allowed& allowed_;
  const int64_t n_ids_;
  const int threads_;
  const FoldPlan plan_;
  std::vector<FoldScratch<T>> scratch_;  // of each worker
  std::vector<AllowedTiles<T>> tiles_;   // of each worker
  AllowedCut cut_;
  ReturnedBuffer<char> prepared_;
};

template <class T, class Consumer>
void fold(const KernelTable& table, const Projection& p, const Adjust<T>& adjust, Consumer& consumer, int threads, const Allowed& allowed = {}) {
  if (p.n_rows() > 0) Fold<T, Consumer>(table, p, adjust, consumer, threads, allowed).run();
}

}  // namespace lmhead
