"""A sound plan written by hand in the text form, with every kind of action; tests edit it.

y is moved to the host and back, z dropped and recomputed, m lives on the host, gradients are in place, the workspace's
bytes are used again. The peak is at action 14: x and w (2048 bytes), loss (512), y (1024), z (1024).
"""

from __future__ import annotations

SAMPLE = """\
snplan plan, format 1
snplan_version "0.1.0"
model {"name": "sample.onnx", "sha256": "ab12ab12ab12ab12ab12ab12ab12ab12ab12ab12ab12ab12ab12ab12ab12ab12"}
options {"gpu_mem": "8K", "optimizer": "momentum"}
device {"capacity_bytes": 1048576, "name": "test"}
budget_bytes 8192
reserve_bytes 1024
arena_bytes 4608
peak_live_bytes 4608
host_arena_bytes 2048
step_time_us 30
lower_bound_us 20
floor_bytes 3072
tensors
  x float32 [2,128] 1024 input
  w float32 [256] 1024 parameter
  m float32 [256] 1024 optimizer
  y float32 [256] 1024 activation
  z float32 [256] 1024 activation
  loss float32 [] 4 loss
  z:grad float32 [256] 1024 gradient
  w:grad float32 [256] 1024 gradient
  w:next float32 [256] 1024 parameter
  m:next float32 [256] 1024 optimizer
ops
  mul mul forward (x, w) -> (y) attrs {"in_shapes": [[256], null]} nodes ["Mul_0"]
  drop dropout forward (y) -> (z) attrs {"ratio": 0.5} nodes ["Dropout_1", "Dropout 2"] rng 7
  sum reduce_sum forward (z) -> (loss) attrs {"axes": [0], "keepdims": false}
  z_grad neg backward (z) -> (z:grad)
  w_grad mul backward (z:grad, y) -> (w:grad)
  update momentum_update update (w, w:grad, m) -> (w:next, m:next) attrs {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.0}
buffers
  b0 offset 0 bytes 1024
  b1 offset 1024 bytes 1024
  b2 offset 2048 bytes 1024
  b3 offset 3072 bytes 512
  b4 offset 3072 bytes 1024
  b5 offset 4096 bytes 512
  b6 offset 2048 bytes 1024
  b7 offset 3072 bytes 1024
  b8 offset 2048 bytes 1024
slots
  s0 offset 0 bytes 1024
  s1 offset 1024 bytes 1024
resident
  x in b0
  w in b1
  m in s0
persistent
  w becomes w:next in b1
  m becomes m:next in s0
outputs
  loss in b5
actions
  0: alloc b2
  1: alloc b3
  2: algorithm mul engine 1 workspace b3
  3: run mul (w@b1, x@b0) -> (y@b2)
  4: free b3
  5: offload y b2 -> s1 after 3
  6: alloc b4
  7: run drop (y@b2) -> (z@b4)
  8: free b2
  9: alloc b5
  10: run sum (z@b4) -> (loss@b5)
  11: free b4
  12: alloc b6
  13: prefetch y s1 -> b6 after 5, 7
  14: alloc b7
  15: recompute drop (y@b6) -> (z@b7) after 13
  16: run z_grad (z@b7) -> (z:grad@b7)
  17: run w_grad (y@b6, z:grad@b7) -> (w:grad@b7)
  18: free b6
  19: alloc b8
  20: prefetch m s0 -> b8 after 17
  21: run update (m@b8, w@b1, w:grad@b7) -> (w:next@b1, m:next@b8) after 20
  22: offload m:next b8 -> s0 after 21
  23: free b7
  24: free b8
"""
