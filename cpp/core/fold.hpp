// The fold over tiles of logits that every fused operation is: rows of a block are prepared once, runs of ids are shared out
// among the workers, each tile is adjusted and handed to the consumer.
//
// A consumer has
//   begin(first_row, n_rows)      rows of a block are about to come (one thread)
//   place(first_row, first_id)    null, or where the tile's logits shall be computed: {T*, stride}
//   tile(worker, tile)            from any worker; a worker sees the ids of a row in ascending order
//   finish(first_row, n_rows)     all tiles of the block have been seen (one thread)
//   bytes_per_row()               what it keeps of a row between the tiles
#pragma once

#include <algorithm>
#include <vector>

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

  FoldPlan(const Projection& p, int64_t kept_bytes_per_row, int threads) {
    const int64_t n_blocks = std::max<int64_t>(1, ceil_div(p.n_ids(), kBlockIds));
    // 256 rows give each weight 128 flops a byte of float32, far above what memory needs; narrower heads take more rows, up to
    // 4 MiB of prepared rows. A consumer keeps at most 64 MiB, or what 16 rows need.
    const int64_t by_width = 4 * 1024 * 1024 / std::max<int64_t>(1, p.hidden_stride());
    const int64_t by_kept = 64 * 1024 * 1024 / std::max<int64_t>(1, kept_bytes_per_row);
    rows_per_block = std::max<int64_t>(16, std::min(std::max<int64_t>(256, by_width), by_kept));
    const int64_t rows = std::min(rows_per_block, p.n_rows());
    ids_per_task = kBlockIds * std::max<int64_t>(1, blocks_per_task(p, rows, n_blocks, threads));
    rows_per_task = std::min<int64_t>(rows, 256);
    // Few ids: share the rows out too, in multiples of every register tile (3 and 4 rows).
    const int64_t tasks = ceil_div(p.n_ids(), ids_per_task) * ceil_div(rows, rows_per_task);
    if (threads > 1 && tasks < 4 * threads && p.path() != WeightPath::packed)
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

template <class T, class Consumer>
void fold(const KernelTable& table, const Projection& p, const Adjust<T>& adjust, Consumer& consumer, int threads) {
  if (p.n_rows() == 0) return;
  if (double(p.n_rows()) * double(p.n_ids()) * double(p.width()) < kSerialWork) threads = 1;
  const FoldPlan plan(p, consumer.bytes_per_row(), threads);
  std::vector<FoldScratch<T>> scratch(static_cast<size_t>(threads));
  const int64_t most_rows = std::min(plan.rows_per_block, p.n_rows());
  ReturnedBuffer<char> prepared(most_rows * p.hidden_stride());
  for (int64_t row0 = 0; row0 < p.n_rows(); row0 += plan.rows_per_block) {
    const int64_t rows = std::min(plan.rows_per_block, p.n_rows() - row0);
    // Preparing is a copy of N x D against N x V x D multiplications; 16 rows a task.
    run_tasks(rows >= 64 ? threads : 1, ceil_div(rows, 16), [&](int worker, int64_t task) {
      for (int64_t r = 16 * task; r < std::min(rows, 16 * (task + 1)); ++r)
        p.prepare_row(row0 + r, prepared.get() + r * p.hidden_stride(), scratch[static_cast<size_t>(worker)].projection.temporary);
    });
    consumer.begin(row0, rows);
    const int64_t n_runs = ceil_div(p.n_ids(), plan.ids_per_task);
    run_tasks(threads, n_runs * ceil_div(rows, plan.rows_per_task), [&](int worker, int64_t task) {
      FoldScratch<T>& mine = scratch[static_cast<size_t>(worker)];
      const int64_t r = task / n_runs * plan.rows_per_task, id = task % n_runs * plan.ids_per_task;
      Tile<T> tile{nullptr, 0, row0 + r, std::min(plan.rows_per_task, rows - r), id, std::min(plan.ids_per_task, p.n_ids() - id)};
      const Place<T> place = consumer.place(tile.first_row, tile.first_id);
      tile.logits = place.logits ? place.logits : mine.tile.reserve(plan.rows_per_task * plan.ids_per_task);
      tile.stride = place.logits ? place.stride : plan.ids_per_task;
      p.project(prepared.get() + r * p.hidden_stride(), tile.n_rows, id, tile.n_ids, tile.logits, tile.stride, mine.projection);
      adjust(table, tile);
      consumer.tile(worker, tile);
    });
    consumer.finish(row0, rows);
  }
}

}  // namespace lmhead
