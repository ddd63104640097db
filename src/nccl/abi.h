// What NCCL and a net plugin agree on: the tables of functions that NCCL looks up by name in a
// plugin, for NCCL 2.19 (v8) to 2.28 and later (v11). Written after NCCL's public description of
// its plugins (ext-net). Every table is the one before with changes, so the types of functions that
// did not change are shared.
#pragma once

#include <cstddef>
#include <cstdint>

namespace thalweg::nccl {

enum class NcclResult : int {
  kSuccess = 0,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidUsage = 5,
  kRemoteError = 6,
};

// NCCL's levels of messages, and the bits that name what a message is about.
inline constexpr int kNcclWarn = 2;
inline constexpr int kNcclInfo = 3;
inline constexpr unsigned long kNcclInitAndNet = 1 | 16;
inline constexpr unsigned long kNcclAll = ~0UL;
using NcclLogger = void (*)(int level, unsigned long flags, const char* file, int line,
                            const char* format, ...);

inline constexpr std::size_t kNcclHandleSize = 128;
inline constexpr int kNcclPointerHost = 1;
inline constexpr int kNcclDevicesPerNic = 4;
// The largest size that NCCL takes for a message.
inline constexpr std::size_t kNcclMaxMessage = std::size_t{1} << 40;
// Requests of one connection that NCCL has in flight at most.
inline constexpr std::size_t kNcclMaxRequests = 32;

struct PropertiesV8 {
  char* name;
  char* pci_path;  // null: the card is virtual
  std::uint64_t guid;
  int pointers;  // kNcclPointerHost: NCCL copies between the GPU and pinned memory of its own
  int registration_is_global;
  int speed_mbps;
  int port;
  float latency_us;  // 0: NCCL's own
  int max_connections;
  int max_receives;  // of one irecv
  int offload_type;
  int offload_version;
};

struct NicParts {
  int count;
  int devices[kNcclDevicesPerNic];
};

struct PropertiesV9 {  // and of v10
  char* name;
  char* pci_path;
  std::uint64_t guid;
  int pointers;
  int registration_is_global;
  int force_flush;
  int speed_mbps;
  int port;
  float latency_us;
  int max_connections;
  int max_receives;
  int offload_type;
  int offload_version;
  NicParts parts;
  std::size_t max_p2p_bytes;
  std::size_t max_collective_bytes;
};

struct PropertiesV11 {
  PropertiesV9 common;
  int max_multi_request;
};
static_assert(offsetof(PropertiesV11, max_multi_request) == sizeof(PropertiesV9));

constexpr PropertiesV8 properties_v8_of(const PropertiesV9& all) {
  return {.name = all.name,
          .pci_path = all.pci_path,
          .guid = all.guid,
          .pointers = all.pointers,
          .registration_is_global = all.registration_is_global,
          .speed_mbps = all.speed_mbps,
          .port = all.port,
          .latency_us = all.latency_us,
          .max_connections = all.max_connections,
          .max_receives = all.max_receives,
          .offload_type = all.offload_type,
          .offload_version = all.offload_version};
}

using DevicesFn = NcclResult(int* count);
using AcceptFn = NcclResult(void* listener, void** connection, void** offload);
using RegisterFn = NcclResult(void* connection, void* data, std::size_t size, int type,
                              void** memory);
using RegisterDmaFn = NcclResult(void* connection, void* data, std::size_t size, int type,
                                 std::uint64_t offset, int fd, void** memory);
using DeregisterFn = NcclResult(void* connection, void* memory);
using FlushFn = NcclResult(void* connection, int count, void** data, int* sizes, void** memories,
                           void** request);
using TestFn = NcclResult(void* request, int* done, int* sizes);
using CloseFn = NcclResult(void* object);
using DeviceMemoryFn = NcclResult(void* connection, void* memory, void** pointer);
using ConsumedFn = NcclResult(void* connection, int count, void* request);
using MakeNicFn = NcclResult(int* device, NicParts* parts);

struct NetV8 {
  const char* name;
  NcclResult (*init)(NcclLogger logger);
  DevicesFn* devices;
  NcclResult (*properties)(int device, PropertiesV8* out);
  NcclResult (*listen)(int device, void* handle, void** listener);
  NcclResult (*connect)(int device, void* handle, void** connection, void** offload);
  AcceptFn* accept;
  RegisterFn* register_memory;
  RegisterDmaFn* register_dma;
  DeregisterFn* deregister_memory;
  NcclResult (*isend)(void* connection, void* data, int size, int tag, void* memory,
                      void** request);
  NcclResult (*irecv)(void* connection, int count, void** data, int* sizes, int* tags,
                      void** memories, void** request);
  FlushFn* iflush;
  TestFn* test;
  CloseFn* close_send;
  CloseFn* close_receive;
  CloseFn* close_listen;
  DeviceMemoryFn* device_memory;
  ConsumedFn* consumed;
};

struct NetV9 {
  const char* name;
  NcclResult (*init)(NcclLogger logger);
  DevicesFn* devices;
  NcclResult (*properties)(int device, PropertiesV9* out);
  NcclResult (*listen)(int device, void* handle, void** listener);
  NcclResult (*connect)(int device, void* handle, void** connection, void** offload);
  AcceptFn* accept;
  RegisterFn* register_memory;
  RegisterDmaFn* register_dma;
  DeregisterFn* deregister_memory;
  NcclResult (*isend)(void* connection, void* data, std::size_t size, int tag, void* memory,
                      void** request);
  NcclResult (*irecv)(void* connection, int count, void** data, std::size_t* sizes, int* tags,
                      void** memories, void** request);
  FlushFn* iflush;
  TestFn* test;
  CloseFn* close_send;
  CloseFn* close_receive;
  CloseFn* close_listen;
  DeviceMemoryFn* device_memory;
  ConsumedFn* consumed;
  MakeNicFn* make_nic;
};

// From v10 on `profile` is what NCCL's profiler knows the request by.
using SendFn = NcclResult(void* connection, void* data, std::size_t size, int tag, void* memory,
                          void* profile, void** request);
using ReceiveFn = NcclResult(void* connection, int count, void** data, std::size_t* sizes,
                             int* tags, void** memories, void** profiles, void** request);

struct NetV10 {
  const char* name;
  NcclResult (*init)(NcclLogger logger, void* profiler);
  DevicesFn* devices;
  NcclResult (*properties)(int device, PropertiesV9* out);
  NcclResult (*listen)(int device, void* handle, void** listener);
  NcclResult (*connect)(int device, void* config, void* handle, void** connection, void** offload);
  AcceptFn* accept;
  RegisterFn* register_memory;
  RegisterDmaFn* register_dma;
  DeregisterFn* deregister_memory;
  SendFn* isend;
  ReceiveFn* irecv;
  FlushFn* iflush;
  TestFn* test;
  CloseFn* close_send;
  CloseFn* close_receive;
  CloseFn* close_listen;
  DeviceMemoryFn* device_memory;
  ConsumedFn* consumed;
  MakeNicFn* make_nic;
};

struct NetV11 {
  const char* name;
  NcclResult (*init)(void** context, std::uint64_t communicator, void* config, NcclLogger logger,
                     void* profiler);
  DevicesFn* devices;
  NcclResult (*properties)(int device, PropertiesV11* out);
  NcclResult (*listen)(void* context, int device, void* handle, void** listener);
  NcclResult (*connect)(void* context, int device, void* handle, void** connection, void** offload);
  AcceptFn* accept;
  RegisterFn* register_memory;
  RegisterDmaFn* register_dma;
  DeregisterFn* deregister_memory;
  SendFn* isend;
  ReceiveFn* irecv;
  FlushFn* iflush;
  TestFn* test;
  CloseFn* close_send;
  CloseFn* close_receive;
  CloseFn* close_listen;
  DeviceMemoryFn* device_memory;
  ConsumedFn* consumed;
  MakeNicFn* make_nic;
  NcclResult (*finalize)(void* context);
  NcclResult (*set_attributes)(void* context, void* attributes);
};

}  // namespace thalweg::nccl
