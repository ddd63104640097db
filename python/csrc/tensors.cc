#include "tensors.h"

#include <optional>

namespace thalweg::python {
namespace {

std::optional<DType> type_of(c10::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DType::kFloat32;
    case at::kDouble:
      return DType::kFloat64;
    case at::kHalf:
      return DType::kFloat16;
    case at::kBFloat16:
      return DType::kBFloat16;
    case at::kFloat8_e4m3fn:
      return DType::kFloat8E4m3fn;
    case at::kFloat8_e5m2:
      return DType::kFloat8E5m2;
    case at::kChar:
    case at::kByte:
    case at::kBool:
      return DType::kInt8;
    case at::kShort:
    case at::kUInt16:
      return DType::kInt16;
    case at::kInt:
    case at::kUInt32:
      return DType::kInt32;
    case at::kLong:
    case at::kUInt64:
      return DType::kInt64;
    default:
      return std::nullopt;
  }
}

bool is_bitwise(const c10d::ReduceOp& op) {
  return op == c10d::ReduceOp::BAND || op == c10d::ReduceOp::BOR || op == c10d::ReduceOp::BXOR;
}

ReduceOp arithmetic_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::kSum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::kMean;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::kProduct;
    case c10d::ReduceOp::MIN:
      return ReduceOp::kMin;
    case c10d::ReduceOp::MAX:
      return ReduceOp::kMax;
    default:
      TORCH_CHECK(false, "thalweg: ReduceOp number ", static_cast<int>(op.op_),
                  "; SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR and BXOR are allowed");
  }
}

// Reductions of bool: a sum is "any", a product is "all".
Reduction of_truth(const c10d::ReduceOp& op) {
  Reduction reduction{.type = DType::kInt8};
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::MAX:
    case c10d::ReduceOp::BOR:
      reduction.op = ReduceOp::kMax;
      return reduction;
    case c10d::ReduceOp::PRODUCT:
    case c10d::ReduceOp::MIN:
    case c10d::ReduceOp::BAND:
      reduction.op = ReduceOp::kMin;
      return reduction;
    case c10d::ReduceOp::BXOR:
      reduction.way = Reduction::Way::kGather;
      reduction.bitwise = c10d::ReduceOp::BXOR;
      return reduction;
    default:
      TORCH_CHECK(false, "thalweg: AVG of bool; cast to float first");
  }
}

}  // namespace

TensorSpan span_of(const at::Tensor& host) {
  if (const auto type = type_of(host.scalar_type())) {
    return {host.data_ptr(), host.numel(), *type};
  }
  return {host.data_ptr(), static_cast<std::int64_t>(host.nbytes()), DType::kInt8};
}

Reduction reduction_of(const c10d::ReduceOp& op, c10::ScalarType type) {
  if (type == at::kBool) return of_truth(op);
  if (is_bitwise(op)) {
    TORCH_CHECK(c10::isIntegralType(type, false), "thalweg: a bitwise reduction of ", type,
                "; only integers and bool are allowed");
    return {.way = Reduction::Way::kGather, .bitwise = op.op_};
  }
  Reduction reduction{.op = arithmetic_of(op)};
  if (c10::isComplexType(type)) {
    TORCH_CHECK(op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG, "thalweg: a reduction of ",
                type, "; complex numbers have SUM and AVG");
    const auto real = type_of(c10::toRealValueType(type));
    TORCH_CHECK(real, "thalweg: no reduction of ", type);
    reduction.type = *real;
    reduction.words = 2;
    return reduction;
  }
  const auto known = type_of(type);
  TORCH_CHECK(
      known, "thalweg: no reduction of ", type,
      "; float8_e4m3fn, float8_e5m2, float16, bfloat16, float32, float64, complex, bool and "
      "integers are allowed");
  reduction.type = *known;
  if (c10::isIntegralType(type, false) && !c10::isSignedType(type)) {
    const bool ordered = op == c10d::ReduceOp::MIN || op == c10d::ReduceOp::MAX;
    TORCH_CHECK(op != c10d::ReduceOp::AVG && (!ordered || type == at::kByte),
                "thalweg: this reduction of ", type, "; cast to int64 first");
    if (ordered) reduction.way = Reduction::Way::kUnsigned;
  }
  return reduction;
}

TensorSpan span_of(const at::Tensor& host, const Reduction& reduction) {
  return {host.data_ptr(), host.numel() * reduction.words, reduction.type};
}

void flip(at::Tensor& host) { host.bitwise_xor_(0x80); }

void combine(const at::Tensor& contributions, const Reduction& reduction, at::Tensor& out) {
  at::Tensor flat = out.view({-1});
  flat.copy_(contributions[0]);
  for (std::int64_t r = 1; r < contributions.size(0); ++r) {
    if (reduction.bitwise == c10d::ReduceOp::BAND) {
      flat.bitwise_and_(contributions[r]);
    } else if (reduction.bitwise == c10d::ReduceOp::BOR) {
      flat.bitwise_or_(contributions[r]);
    } else {
      flat.bitwise_xor_(contributions[r]);
    }
  }
}

void check_same(const std::vector<at::Tensor>& tensors, const at::Tensor& like, const char* what) {
  for (std::size_t r = 0; r < tensors.size(); ++r) {
    TORCH_CHECK(tensors[r].scalar_type() == like.scalar_type(), "thalweg: ", what, ": tensor ", r,
                " is ", tensors[r].scalar_type(), "; all must be ", like.scalar_type());
  }
}

bool same_sizes(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() != tensors[0].numel()) return false;
  }
  return true;
}

}  // namespace thalweg::python
