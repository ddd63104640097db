// The functions that NCCL calls, and the tables by which it finds them.
#include <climits>
#include <memory>
#include <span>
#include <utility>

#include "nccl/abi.h"
#include "nccl/guarded.h"
#include "nccl/log.h"
#include "nccl/plugin.h"

namespace thalweg::nccl {
namespace {

NcclResult nccl_init(NcclLogger logger) {
  set_logger(logger);
  return guarded([] { return Plugin::instance().init(); });
}

NcclResult init_v10(NcclLogger logger, void* /*profiler*/) { return nccl_init(logger); }

NcclResult init_v11(void** context, std::uint64_t /*communicator*/, void* /*config*/,
                    NcclLogger logger, void* /*profiler*/) {
  *context = nullptr;
  return nccl_init(logger);
}

NcclResult nccl_finalize(void* /*context*/) {
  Plugin::instance().finalize();
  return NcclResult::kSuccess;
}

NcclResult set_attributes(void* /*context*/, void* /*attributes*/) { return NcclResult::kSuccess; }

NcclResult nccl_devices(int* count) {
  return guarded([&]() -> Status {
    THALWEG_TRY(*count, Plugin::instance().device_count());
    return ok_status();
  });
}

NcclResult properties_v11(int device, PropertiesV11* out) {
  return guarded([&]() -> Status {
    THALWEG_TRY(*out, Plugin::instance().properties(device));
    return ok_status();
  });
}

NcclResult properties_v9(int device, PropertiesV9* out) {
  PropertiesV11 all;
  const NcclResult result = properties_v11(device, &all);
  if (result == NcclResult::kSuccess) *out = all.common;
  return result;
}

NcclResult properties_v8(int device, PropertiesV8* out) {
  PropertiesV9 all;
  const NcclResult result = properties_v9(device, &all);
  if (result != NcclResult::kSuccess) return result;
  *out = properties_v8_of(all);
  return result;
}

NcclResult nccl_listen(int device, void* handle, void** listener) {
  return guarded([&]() -> Status {
    THALWEG_TRY(auto made, Plugin::instance().listen(device));
    const HandleBytes bytes = made->handle();
    std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(handle));
    *listener = made.release();
    return ok_status();
  });
}

NcclResult listen_v11(void* /*context*/, int device, void* handle, void** listener) {
  return nccl_listen(device, handle, listener);
}

NcclResult nccl_connect(int device, void* handle, void** connection, void** /*offload*/) {
  *connection = nullptr;
  return guarded([&]() -> Status {
    const std::span<std::byte, kNcclHandleSize> bytes(static_cast<std::byte*>(handle),
                                                      kNcclHandleSize);
    THALWEG_TRY(auto made, Plugin::instance().connect(device, bytes));
    *connection = static_cast<Connection*>(made.release());
    return ok_status();
  });
}

NcclResult connect_v10(int device, void* /*config*/, void* handle, void** connection,
                       void** offload) {
  return nccl_connect(device, handle, connection, offload);
}

NcclResult connect_v11(void* /*context*/, int device, void* handle, void** connection,
                       void** offload) {
  return nccl_connect(device, handle, connection, offload);
}

NcclResult nccl_accept(void* listener, void** connection, void** /*offload*/) {
  *connection = nullptr;
  return guarded([&]() -> Status {
    THALWEG_TRY(auto made, Plugin::instance().accept(*static_cast<Listener*>(listener)));
    *connection = static_cast<Connection*>(made.release());
    return ok_status();
  });
}

NcclResult register_memory(void* /*connection*/, void* /*data*/, std::size_t /*size*/, int type,
                           void** memory) {
  *memory = nullptr;
  if (type == kNcclPointerHost) return NcclResult::kSuccess;
  return report(Error(ErrorCode::kInternal,
                      "NCCL registers memory of a GPU, which this plugin did not offer to take"));
}

NcclResult deregister_memory(void* /*connection*/, void* /*memory*/) {
  return NcclResult::kSuccess;
}

NcclResult nccl_isend(void* connection, void* data, std::size_t size, int /*tag*/, void* /*memory*/,
                      void* /*profile*/, void** request) {
  *request = nullptr;
  return guarded([&]() -> Status {
    auto* const sender = static_cast<SendConnection*>(static_cast<Connection*>(connection));
    THALWEG_TRY(*request, sender->send(data, size));
    return ok_status();
  });
}

NcclResult isend_v9(void* connection, void* data, std::size_t size, int tag, void* memory,
                    void** request) {
  return nccl_isend(connection, data, size, tag, memory, nullptr, request);
}

NcclResult isend_v8(void* connection, void* data, int size, int tag, void* memory, void** request) {
  return nccl_isend(connection, data, static_cast<std::size_t>(size), tag, memory, nullptr,
                    request);
}

NcclResult nccl_irecv(void* connection, int count, void** data, std::size_t* sizes, int* /*tags*/,
                      void** /*memories*/, void** /*profiles*/, void** request) {
  *request = nullptr;
  return guarded([&]() -> Status {
    if (count != 1) return Error(ErrorCode::kInternal, "NCCL groups receives, 1 is allowed");
    auto* const receiver = static_cast<ReceiveConnection*>(static_cast<Connection*>(connection));
    THALWEG_TRY(*request, receiver->receive(data[0], sizes[0]));
    return ok_status();
  });
}

NcclResult irecv_v9(void* connection, int count, void** data, std::size_t* sizes, int* tags,
                    void** memories, void** request) {
  return nccl_irecv(connection, count, data, sizes, tags, memories, nullptr, request);
}

NcclResult irecv_v8(void* connection, int count, void** data, int* sizes, int* tags,
                    void** memories, void** request) {
  auto size = static_cast<std::size_t>(sizes[0]);
  return nccl_irecv(connection, count, data, &size, tags, memories, nullptr, request);
}

// Host memory needs no flush.
NcclResult nccl_iflush(void* /*connection*/, int /*count*/, void** /*data*/, int* /*sizes*/,
                       void** /*memories*/, void** request) {
  *request = nullptr;
  return NcclResult::kSuccess;
}

NcclResult nccl_test(void* request, int* done, int* sizes) {
  *done = 0;
  return guarded([&]() -> Status {
    auto& asked = *static_cast<Request*>(request);
    std::size_t size = 0;
    THALWEG_TRY(const bool over, asked.connection->test(asked, size));
    *done = over ? 1 : 0;
    if (over && sizes != nullptr) *sizes = static_cast<int>(std::min<std::size_t>(size, INT_MAX));
    return ok_status();
  });
}

NcclResult close_connection(void* connection) {
  delete static_cast<Connection*>(connection);
  return NcclResult::kSuccess;
}

NcclResult close_listen(void* listener) {
  delete static_cast<Listener*>(listener);
  return NcclResult::kSuccess;
}

constexpr const char* kPluginName = "Thalweg";

}  // namespace

// NCCL looks for the newest version that it knows.
#define THALWEG_NCCL_EXPORT extern "C" __attribute__((visibility("default")))

THALWEG_NCCL_EXPORT const NetV8 ncclNetPlugin_v8;
THALWEG_NCCL_EXPORT const NetV9 ncclNetPlugin_v9;
THALWEG_NCCL_EXPORT const NetV10 ncclNetPlugin_v10;
THALWEG_NCCL_EXPORT const NetV11 ncclNetPlugin_v11;

const NetV8 ncclNetPlugin_v8 = {kPluginName,  nccl_init,         nccl_devices,     properties_v8,
                                nccl_listen,  nccl_connect,      nccl_accept,      register_memory,
                                nullptr,      deregister_memory, isend_v8,         irecv_v8,
                                nccl_iflush,  nccl_test,         close_connection, close_connection,
                                close_listen, nullptr,           nullptr};
const NetV9 ncclNetPlugin_v9 = {kPluginName,  nccl_init,         nccl_devices,     properties_v9,
                                nccl_listen,  nccl_connect,      nccl_accept,      register_memory,
                                nullptr,      deregister_memory, isend_v9,         irecv_v9,
                                nccl_iflush,  nccl_test,         close_connection, close_connection,
                                close_listen, nullptr,           nullptr,          nullptr};
const NetV10 ncclNetPlugin_v10 = {
    kPluginName,      init_v10,     nccl_devices,    properties_v9, nccl_listen,
    connect_v10,      nccl_accept,  register_memory, nullptr,       deregister_memory,
    nccl_isend,       nccl_irecv,   nccl_iflush,     nccl_test,     close_connection,
    close_connection, close_listen, nullptr,         nullptr,       nullptr};
const NetV11 ncclNetPlugin_v11 = {
    kPluginName, init_v11,        nccl_devices,     properties_v11,    listen_v11,   connect_v11,
    nccl_accept, register_memory, nullptr,          deregister_memory, nccl_isend,   nccl_irecv,
    nccl_iflush, nccl_test,       close_connection, close_connection,  close_listen, nullptr,
    nullptr,     nullptr,         nccl_finalize,    set_attributes};

}  // namespace thalweg::nccl
