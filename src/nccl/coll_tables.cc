// The functions of CollNet that NCCL calls, and the tables by which it finds them.
#include <algorithm>
#include <climits>
#include <memory>
#include <optional>
#include <span>

#include "nccl/coll_abi.h"
#include "nccl/coll_net.h"
#include "nccl/guarded.h"
#include "nccl/log.h"
#include "nccl/plugin.h"

namespace thalweg::nccl {
namespace {

NcclResult coll_init(NcclLogger logger) {
  set_logger(logger);
  return guarded([] { return CollNet::instance().init(); });
}

NcclResult coll_init_v11(void** context, std::uint64_t /*communicator*/, NcclLogger logger) {
  *context = nullptr;
  return coll_init(logger);
}

NcclResult coll_finalize(void* /*context*/) { return NcclResult::kSuccess; }

NcclResult coll_devices(int* count) {
  *count = 0;
  return guarded([&]() -> Status {
    THALWEG_TRY(*count, CollNet::instance().device_count());
    return ok_status();
  });
}

NcclResult coll_properties_v11(int device, PropertiesV11* out) {
  return guarded([&]() -> Status {
    THALWEG_TRY(*out, Plugin::instance().properties(device));
    return ok_status();
  });
}

NcclResult coll_properties_v9(int device, PropertiesV9* out) {
  PropertiesV11 all;
  const NcclResult result = coll_properties_v11(device, &all);
  if (result == NcclResult::kSuccess) *out = all.common;
  return result;
}

NcclResult coll_properties_v8(int device, PropertiesV8* out) {
  PropertiesV9 all;
  const NcclResult result = coll_properties_v9(device, &all);
  if (result == NcclResult::kSuccess) *out = properties_v8_of(all);
  return result;
}

NcclResult coll_listen(int device, void* handle, void** listener) {
  return guarded([&]() -> Status {
    THALWEG_TRY(auto made, CollNet::instance().listen(device));
    const HandleBytes bytes = made->listener->handle();
    std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(handle));
    *listener = made.release();
    return ok_status();
  });
}

NcclResult coll_listen_v11(void* /*context*/, int device, void* handle, void** listener) {
  return coll_listen(device, handle, listener);
}

NcclResult coll_connect(void** handles, int ranks, int rank, void* listener, void** collective) {
  *collective = nullptr;
  return guarded([&]() -> Status {
    if (ranks < 1 || rank < 0 || rank >= ranks || listener == nullptr) {
      return Error(ErrorCode::kInternal, "CollNet: NCCL connects without a listener or a rank");
    }
    const std::span<void* const> all(handles, static_cast<std::size_t>(ranks));
    THALWEG_TRY(auto group,
                CollNet::instance().connect(all, rank, *static_cast<CollListener*>(listener)));
    *collective = group.release();
    return ok_status();
  });
}

NcclResult coll_reduce_support(int type, int op, int* supported) {
  *supported = coll_type(type, op) ? 1 : 0;
  return NcclResult::kSuccess;
}

NcclResult coll_register(void* /*collective*/, void* data, std::size_t size, int type,
                         void** memory) {
  *memory = nullptr;
  return guarded([&]() -> Status {
    if (type != kNcclPointerHost) {
      return Error(ErrorCode::kInternal,
                   "NCCL registers memory of a GPU, which this plugin did not offer to take");
    }
    *memory = new CollMemory{.data = static_cast<const std::byte*>(data), .size = size};
    return ok_status();
  });
}

NcclResult coll_deregister(void* collective, void* memory) {
  const std::unique_ptr<CollMemory> registered(static_cast<CollMemory*>(memory));
  if (registered && collective != nullptr) {
    static_cast<CollGroup*>(collective)->deregister_memory(*registered);
  }
  return NcclResult::kSuccess;
}

NcclResult coll_iallreduce(void* collective, void* send, void* receive, std::size_t count, int type,
                           int op, void* /*send_memory*/, void* /*receive_memory*/,
                           void** request) {
  *request = nullptr;
  return guarded([&]() -> Status {
    const std::optional<DType> known = coll_type(type, op);
    if (!known) {
      return Error(ErrorCode::kInternal,
                   "NCCL asks for a sum that this plugin said it does not support");
    }
    THALWEG_TRY(*request,
                static_cast<CollGroup*>(collective)->allreduce(send, receive, count, *known));
    return ok_status();
  });
}

NcclResult coll_iallreduce_v8(void* collective, void* send, void* receive, int count, int type,
                              int op, void* send_memory, void* receive_memory, void** request) {
  return coll_iallreduce(collective, send, receive, static_cast<std::size_t>(count), type, op,
                         send_memory, receive_memory, request);
}

// Host memory needs no flush.
NcclResult coll_iflush(void* /*collective*/, void* /*data*/, int /*size*/, void* /*memory*/,
                       void** request) {
  *request = nullptr;
  return NcclResult::kSuccess;
}

NcclResult coll_test(void* request, int* done, int* size) {
  *done = 0;
  return guarded([&]() -> Status {
    auto& asked = *static_cast<CollRequest*>(request);
    std::size_t bytes = 0;
    THALWEG_TRY(const bool over, asked.group->test(asked, bytes));
    *done = over ? 1 : 0;
    if (over && size != nullptr) *size = static_cast<int>(std::min<std::size_t>(bytes, INT_MAX));
    return ok_status();
  });
}

NcclResult coll_close(void* collective) {
  delete static_cast<CollGroup*>(collective);
  return NcclResult::kSuccess;
}

NcclResult coll_close_listen(void* listener) {
  delete static_cast<CollListener*>(listener);
  return NcclResult::kSuccess;
}

constexpr const char* kCollName = "Thalweg";
// Without iallgather and ireducescatter NCCL gathers and scatters by other ways.
constexpr CollNetV9 kCollV9 = {
    kCollName,         coll_init,       coll_devices,        coll_properties_v9,
    coll_listen,       coll_connect,    coll_reduce_support, coll_register,
    nullptr,           coll_deregister, coll_iallreduce,     nullptr,
    nullptr,           coll_iflush,     coll_test,           coll_close,
    coll_close_listen, nullptr};

}  // namespace

// NCCL looks for the newest version that it knows.
#define THALWEG_NCCL_COLL_EXPORT extern "C" __attribute__((visibility("default")))

THALWEG_NCCL_COLL_EXPORT const CollNetV8 ncclCollNetPlugin_v8;
THALWEG_NCCL_COLL_EXPORT const CollNetV9 ncclCollNetPlugin_v9;
THALWEG_NCCL_COLL_EXPORT const CollNetV9 ncclCollNetPlugin_v10;
THALWEG_NCCL_COLL_EXPORT const CollNetV11 ncclCollNetPlugin_v11;

const CollNetV8 ncclCollNetPlugin_v8 = {
    kCollName,        coll_init,       coll_devices,        coll_properties_v8,
    coll_listen,      coll_connect,    coll_reduce_support, coll_register,
    nullptr,          coll_deregister, coll_iallreduce_v8,  nullptr,
    nullptr,          coll_iflush,     coll_test,           coll_close,
    coll_close_listen};
const CollNetV9 ncclCollNetPlugin_v9 = kCollV9;
const CollNetV9 ncclCollNetPlugin_v10 = kCollV9;
const CollNetV11 ncclCollNetPlugin_v11 = {
    kCollName,         coll_init_v11,   coll_devices,        coll_properties_v11,
    coll_listen_v11,   coll_connect,    coll_reduce_support, coll_register,
    nullptr,           coll_deregister, coll_iallreduce,     nullptr,
    nullptr,           coll_iflush,     coll_test,           coll_close,
    coll_close_listen, nullptr,         coll_finalize};

}  // namespace thalweg::nccl
