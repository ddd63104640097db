// What NCCL and a CollNet plugin agree on: the tables of functions by which NCCL lets a network sum
// for it, for NCCL 2.19 (v8) to 2.28 and later (v11). Written after NCCL's public description of
// its plugins (ext-net). See abi.h for what both kinds of plugins share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nccl/abi.h"

namespace thalweg::nccl {

// NCCL's numbers of element types and reductions, as far as the plugin knows them.
inline constexpr int kNcclInt32 = 2;
inline constexpr int kNcclFloat16 = 6;
inline constexpr int kNcclFloat32 = 7;
inline constexpr int kNcclBfloat16 = 9;
inline constexpr int kNcclSum = 0;

// The handles of all ranks, whose listeners are `listener` of each; the call may wait.
using CollConnectFn = NcclResult(void** handles, int ranks, int rank, void* listener,
                                 void** collective);
using ReduceSupportFn = NcclResult(int type, int op, int* supported);
using AllreduceFn = NcclResult(void* collective, void* send, void* receive, std::size_t count,
                               int type, int op, void* send_memory, void* receive_memory,
                               void** request);
// Where they are null, NCCL gathers and scatters by other ways.
using AllGatherFn = NcclResult(void* collective, void* send, int parts, void* receive,
                               std::size_t rank_bytes, std::size_t offset, std::size_t bytes,
                               void* memory, void** request);
using ReduceScatterFn = NcclResult(void* collective, int parts, void* send, void* receive,
                                   std::size_t rank_bytes, std::size_t offset, std::size_t bytes,
                                   int type, int op, void* memory, void** request);
using CollFlushFn = NcclResult(void* collective, void* data, int size, void* memory,
                               void** request);

struct CollNetV8 {
  const char* name;
  NcclResult (*init)(NcclLogger logger);
  DevicesFn* devices;
  NcclResult (*properties)(int device, PropertiesV8* out);
  NcclResult (*listen)(int device, void* handle, void** listener);
  CollConnectFn* connect;
  ReduceSupportFn* reduce_support;
  RegisterFn* register_memory;
  RegisterDmaFn* register_dma;
  DeregisterFn* deregister_memory;
  NcclResult (*iallreduce)(void* collective, void* send, void* receive, int count, int type, int op,
                           void* send_memory, void* receive_memory, void** request);
  AllGatherFn* iallgather;
  ReduceScatterFn* ireducescatter;
  CollFlushFn* iflush;
  TestFn* test;
  CloseFn* close_collective;
  CloseFn* close_listen;
};

struct CollNetV9 {  // and v10
  const char* name;
  NcclResult (*init)(NcclLogger logger);
  DevicesFn* devices;
  NcclResult (*properties)(int device, PropertiesV9* out);
  NcclResult (*listen)(int device, void* handle, void** listener);
  CollConnectFn* connect;
  ReduceSupportFn* reduce_support;
  RegisterFn* register_memory;
  RegisterDmaFn* register_dma;
  DeregisterFn* deregister_memory;
  AllreduceFn* iallreduce;
  AllGatherFn* iallgather;
  ReduceScatterFn* ireducescatter;
  CollFlushFn* iflush;
  TestFn* test;
  CloseFn* close_collective;
  CloseFn* close_listen;
  MakeNicFn* make_nic;
};

struct CollNetV11 {
  const char* name;
  NcclResult (*init)(void** context, std::uint64_t communicator, NcclLogger logger);
  DevicesFn* devices;
  NcclResult (*properties)(int device, PropertiesV11* out);
  NcclResult (*listen)(void* context, int device, void* handle, void** listener);
  CollConnectFn* connect;
  ReduceSupportFn* reduce_support;
  RegisterFn* register_memory;
  RegisterDmaFn* register_dma;
  DeregisterFn* deregister_memory;
  AllreduceFn* iallreduce;
  AllGatherFn* iallgather;
  ReduceScatterFn* ireducescatter;
  CollFlushFn* iflush;
  TestFn* test;
  CloseFn* close_collective;
  CloseFn* close_listen;
  MakeNicFn* make_nic;
  NcclResult (*finalize)(void* context);
};

}  // namespace thalweg::nccl
