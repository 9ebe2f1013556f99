"use strict";
// The network on one position: the operations that az_mpi/network/graph.py lists. Numbers are added up in double
// precision, so a result differs from PyTorch's in fp32 by rounding only.
class Network {
  // model: {operations, outputs, shape: [C, H, W]}; weights: Float32Array of all tensors, one after the other.
  constructor(model, weights) {
    this.model = model;
    let at = 0;
    this.steps = model.operations.map((one) => {
      const tensors = one.tensors.map((shape) => {
        const size = shape.reduce((a, b) => a * b, 1), data = Float64Array.from(weights.subarray(at, at + size));
        at += size;
        return { shape, data };
      });
      return { ...one, tensors };
    });
  }
  // Returns {policy: logits, value: a number for the player to move} of planes, a Float64Array [C * H * W].
  evaluate(planes) {
    const results = new Map([["planes", { shape: this.model.shape, data: planes }]]);
    for (const step of this.steps) {
      const inputs = step.inputs.map((name) => results.get(name));
      results.set(step.output, OPERATIONS[step.kind](inputs, step.settings, step.tensors));
    }
    const value = results.get(this.model.outputs.value).data;
    return { policy: results.get(this.model.outputs.policy).data, value: value.length === 3 ? value[0] - value[2] : value[0] };
  }
}

// Tensors are {shape, data} without the batch: axis 1 of the network is axis 0 here.
const OPERATIONS = {
  Conv2d: ([x], settings, [weight, bias]) => convolution(x, settings, weight, bias),
  Linear: ([x], settings, [weight, bias]) => {
    const [rows, columns] = weight.shape, data = product(weight.data, x.data, rows, 1, columns);
    if (bias) for (let r = 0; r < rows; r++) data[r] += bias.data[r];
    return { shape: [rows], data };
  },
  relu: ([x]) => each(x, (value) => (value > 0 ? value : 0)),
  tanh: ([x]) => each(x, Math.tanh),
  sigmoid: ([x]) => each(x, (value) => 1 / (1 + Math.exp(-value))),
  softmax: ([x]) => { // of a vector
    const most = x.data.reduce((a, b) => Math.max(a, b), -Infinity), e = each(x, (value) => Math.exp(value - most));
    const total = e.data.reduce((a, b) => a + b, 0);
    return each(e, (value) => value / total);
  },
  add: ([x, y]) => pairwise(x, y, (a, b) => a + b),
  mul: ([x, y]) => pairwise(x, y, (a, b) => a * b),
  flatten: ([x]) => ({ shape: [x.data.length], data: x.data }),
  select: ([x], { index }) => ({ shape: [], data: x.data.subarray(index, index + 1) }), // of a vector
  squeeze: ([x]) => ({ shape: x.shape.filter((size) => size !== 1), data: x.data }),
  cat: (parts) => { // along axis 0
    const data = new Float64Array(parts.reduce((sum, part) => sum + part.data.length, 0));
    let at = 0;
    for (const part of parts) { data.set(part.data, at); at += part.data.length; }
    return { shape: [parts.reduce((sum, part) => sum + part.shape[0], 0), ...parts[0].shape.slice(1)], data };
  },
  permute: ([x], { axes }) => { // [C, H, W] in another order
    const shape = axes.slice(1).map((axis) => x.shape[axis - 1]), strides = [x.shape[1] * x.shape[2], x.shape[2], 1];
    const [a, b, c] = axes.slice(1).map((axis) => strides[axis - 1]), data = new Float64Array(x.data.length);
    let at = 0;
    for (let i = 0; i < shape[0]; i++) for (let j = 0; j < shape[1]; j++) for (let k = 0; k < shape[2]; k++) data[at++] = x.data[i * a + j * b + k * c];
    return { shape, data };
  },
  amax: ([x], settings) => pooled(x, settings, (part) => part.reduce((a, b) => Math.max(a, b), -Infinity)),
  adaptive_max_pool2d: (...one) => OPERATIONS.amax(...one),
  mean: ([x], settings) => pooled(x, settings, (part) => part.reduce((a, b) => a + b, 0) / part.length),
};

function each(x, change) {
  const data = new Float64Array(x.data.length);
  for (let i = 0; i < data.length; i++) data[i] = change(x.data[i]);
  return { shape: x.shape, data };
}

// x and y have the same shape, or one of them is [C, 1, 1] and the other [C, H, W].
function pairwise(x, y, make) {
  const most = Math.max(x.data.length, y.data.length), data = new Float64Array(most);
  const repeat = most / x.data.length, other = most / y.data.length; // cells for which a number counts
  for (let i = 0; i < most; i++) data[i] = make(x.data[Math.floor(i / repeat)], y.data[Math.floor(i / other)]);
  return { shape: x.data.length === most ? x.shape : y.shape, data };
}

// One number for each channel of x, [C, H, W].
function pooled(x, { keepdims }, number) {
  const [channels, height, width] = x.shape, size = height * width;
  return { shape: keepdims ? [channels, 1, 1] : [channels], data: Float64Array.from({ length: channels }, (_, c) => number(x.data.subarray(c * size, (c + 1) * size))) };
}

// x: [C, H, W] -> [O, H', W'], as the product of the weights and a matrix that has, for each cell, what its output reads.
function convolution(x, { strides, padding, dilation }, weight, bias) {
  const [channels, height, width] = x.shape, [outputs, , high, wide] = weight.shape;
  const rows = Math.floor((height + 2 * padding[0] - dilation[0] * (high - 1) - 1) / strides[0]) + 1;
  const columns = Math.floor((width + 2 * padding[1] - dilation[1] * (wide - 1) - 1) / strides[1]) + 1;
  const length = channels * high * wide, read = new Float64Array(rows * columns * length);
  for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) for (let i = 0; i < high; i++) for (let j = 0; j < wide; j++) {
    const y = r * strides[0] - padding[0] + i * dilation[0], z = c * strides[1] - padding[1] + j * dilation[1];
    if (y < 0 || y >= height || z < 0 || z >= width) continue;
    let to = (r * columns + c) * length + i * wide + j;
    for (let k = 0, from = y * width + z; k < channels; k++, from += height * width, to += high * wide) read[to] = x.data[from];
  }
  const cells = rows * columns, data = product(weight.data, read, outputs, cells, length);
  if (bias) for (let o = 0, at = 0; o < outputs; o++) for (let p = 0; p < cells; p++) data[at++] += bias.data[o];
  return { shape: [outputs, rows, columns], data };
}

// Returns [m, n]: each row of a, [m, length], times each row of b, [n, length]. Four by two rows at a time.
function product(a, b, m, n, length) {
  const out = new Float64Array(m * n);
  let i = 0;
  for (; i + 4 <= m; i += 4) {
    const a0 = i * length, a1 = a0 + length, a2 = a1 + length, a3 = a2 + length;
    let j = 0;
    for (; j + 2 <= n; j += 2) {
      const b0 = j * length, b1 = b0 + length;
      let s00 = 0, s01 = 0, s10 = 0, s11 = 0, s20 = 0, s21 = 0, s30 = 0, s31 = 0;
      for (let k = 0; k < length; k++) {
        const x = b[b0 + k], y = b[b1 + k], p = a[a0 + k], q = a[a1 + k], r = a[a2 + k], s = a[a3 + k];
        s00 += p * x; s01 += p * y; s10 += q * x; s11 += q * y; s20 += r * x; s21 += r * y; s30 += s * x; s31 += s * y;
      }
      const at = i * n + j;
      out[at] = s00; out[at + 1] = s01; out[at + n] = s10; out[at + n + 1] = s11;
      out[at + 2 * n] = s20; out[at + 2 * n + 1] = s21; out[at + 3 * n] = s30; out[at + 3 * n + 1] = s31;
    }
    for (; j < n; j++) for (let row = i; row < i + 4; row++) out[row * n + j] = dot(a, row * length, b, j * length, length);
  }
  for (; i < m; i++) for (let j = 0; j < n; j++) out[i * n + j] = dot(a, i * length, b, j * length, length);
  return out;
}

function dot(a, from, b, at, length) {
  let sum = 0;
  for (let k = 0; k < length; k++) sum += a[from + k] * b[at + k];
  return sum;
}
