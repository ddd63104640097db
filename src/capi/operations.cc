// The calls of the C API that move tensors.
//
// with_X checks the arguments of call X and hands them to `start`, which makes the blocking or the
// asynchronous call of the C++ API.
#include <utility>

#include <thalweg/thalweg.h>

#include "capi/arguments.h"
#include "capi/guarded.h"
#include "capi/handles.h"

namespace thalweg::capi {
namespace {

Status give(Result<Operation> result, thalweg_operation** started) {
  if (!result.ok()) return result.error();
  *started = new thalweg_operation{.operation = std::move(*result)};
  return ok_status();
}

// Runs `body`, which sets *started unless it fails.
template <class Body>
int started_by(thalweg_operation** started, Body body) {
  return guarded([&]() -> Status {
    THALWEG_TRY_STATUS(needed("started", started != nullptr));
    *started = nullptr;
    return body();
  });
}

template <class Start>
Status with_allreduce(const thalweg_communicator* communicator, const void* in, void* out,
                      int64_t elements, int type, int op, const thalweg_call_options* options,
                      Start start) {
  THALWEG_TRY(const Communicator* const all, communicator_of(communicator));
  THALWEG_TRY(const TensorView from, view_of(in, elements, type));
  THALWEG_TRY(const TensorSpan to, span_of(out, elements, type));
  THALWEG_TRY(const CallOptions call, call_of(options, op));
  return in == out ? start(*all, to, call) : start(*all, from, to, call);
}

template <class Start>
Status with_reduce(const thalweg_communicator* communicator, void* tensor, int64_t elements,
                   int type, int op, int root, const thalweg_call_options* options, Start start) {
  THALWEG_TRY(const Communicator* const all, communicator_of(communicator));
  THALWEG_TRY(const TensorSpan span, span_of(tensor, elements, type));
  THALWEG_TRY(const CallOptions call, call_of(options, op));
  return start(*all, span, root, call);
}

template <class Start>
Status with_broadcast(const thalweg_communicator* communicator, void* tensor, int64_t elements,
                      int type, int root, const thalweg_call_options* options, Start start) {
  THALWEG_TRY(const Communicator* const all, communicator_of(communicator));
  THALWEG_TRY(const TensorSpan span, span_of(tensor, elements, type));
  THALWEG_TRY(const CallOptions call, call_of(options));
  return start(*all, span, root, call);
}

template <class Start>
Status with_all_gather(const thalweg_communicator* communicator, const void* in, void* out,
                       int64_t elements, int type, const thalweg_call_options* options,
                       Start start) {
  THALWEG_TRY(const Communicator* const all, communicator_of(communicator));
  THALWEG_TRY(const TensorView from, view_of(in, elements, type));
  THALWEG_TRY(const TensorSpan to, span_of(out, elements, type, all->size()));
  THALWEG_TRY(const CallOptions call, call_of(options));
  return start(*all, from, to, call);
}

template <class Start>
Status with_reduce_scatter(const thalweg_communicator* communicator, const void* in, void* out,
                           int64_t elements, int type, int op, const thalweg_call_options* options,
                           Start start) {
  THALWEG_TRY(const Communicator* const all, communicator_of(communicator));
  THALWEG_TRY(const TensorView from, view_of(in, elements, type, all->size()));
  THALWEG_TRY(const TensorSpan to, span_of(out, elements, type));
  THALWEG_TRY(const CallOptions call, call_of(options, op));
  return start(*all, from, to, call);
}

template <class Start>
Status with_all_to_all(const thalweg_communicator* communicator, const void* in, void* out,
                       int64_t elements, int type, const thalweg_call_options* options,
                       Start start) {
  THALWEG_TRY(const Communicator* const all, communicator_of(communicator));
  THALWEG_TRY(const TensorView from, view_of(in, elements, type, all->size()));
  THALWEG_TRY(const TensorSpan to, span_of(out, elements, type, all->size()));
  THALWEG_TRY(const CallOptions call, call_of(options));
  return start(*all, from, to, call);
}

template <class Start>
Status with_gather(const thalweg_communicator* communicator, const void* in, void* out,
                   int64_t elements, int type, int root, const thalweg_call_options* options,
                   Start start) {
  THALWEG_TRY(const Communicator* const all, communicator_of(communicator));
  THALWEG_TRY(const TensorView from, view_of(in, elements, type));
  THALWEG_TRY(const TensorSpan to, span_of(out, elements, type, all->size()));
  THALWEG_TRY(const CallOptions call, call_of(options));
  return start(*all, from, to, root, call);
}

template <class Start>
Status with_scatter(const thalweg_communicator* communicator, const void* in, void* out,
                    int64_t elements, int type, int root, const thalweg_call_options* options,
                    Start start) {
  THALWEG_TRY(const Communicator* const all, communicator_of(communicator));
  THALWEG_TRY(const TensorView from, view_of(in, elements, type, all->size()));
  THALWEG_TRY(const TensorSpan to, span_of(out, elements, type));
  THALWEG_TRY(const CallOptions call, call_of(options));
  return start(*all, from, to, root, call);
}

template <class Start>
Status with_barrier(const thalweg_communicator* communicator, const thalweg_call_options* options,
                    Start start) {
  THALWEG_TRY(const Communicator* const all, communicator_of(communicator));
  THALWEG_TRY(const CallOptions call, call_of(options));
  return start(*all, call);
}

template <class Start>
Status with_send(const thalweg_communicator* communicator, const void* tensor, int64_t elements,
                 int type, int target, int tag, const thalweg_call_options* options, Start start) {
  THALWEG_TRY(const Communicator* const all, communicator_of(communicator));
  THALWEG_TRY(const TensorView view, view_of(tensor, elements, type));
  THALWEG_TRY(const CallOptions call, call_of(options));
  return start(*all, view, target, tag, call);
}

template <class Start>
Status with_recv(const thalweg_communicator* communicator, void* tensor, int64_t elements, int type,
                 int source, int tag, const thalweg_call_options* options, Start start) {
  THALWEG_TRY(const Communicator* const all, communicator_of(communicator));
  THALWEG_TRY(const TensorSpan span, span_of(tensor, elements, type));
  THALWEG_TRY(const CallOptions call, call_of(options));
  return start(*all, span, source, tag, call);
}

}  // namespace
}  // namespace thalweg::capi

using namespace thalweg;
using namespace thalweg::capi;

int thalweg_allreduce(const thalweg_communicator* communicator, const void* in, void* out,
                      int64_t elements, int type, int op, const thalweg_call_options* options) {
  return guarded([&] {
    return with_allreduce(
        communicator, in, out, elements, type, op, options,
        [](const Communicator& all, const auto&... with) { return all.allreduce(with...); });
  });
}
int thalweg_allreduce_async(const thalweg_communicator* communicator, const void* in, void* out,
                            int64_t elements, int type, int op, const thalweg_call_options* options,
                            thalweg_operation** started) {
  return started_by(started, [&] {
    return with_allreduce(communicator, in, out, elements, type, op, options,
                          [&](const Communicator& all, const auto&... with) {
                            return give(all.allreduce_async(with...), started);
                          });
  });
}

int thalweg_reduce(const thalweg_communicator* communicator, void* tensor, int64_t elements,
                   int type, int op, int root, const thalweg_call_options* options) {
  return guarded([&] {
    return with_reduce(
        communicator, tensor, elements, type, op, root, options,
        [](const Communicator& all, const auto&... with) { return all.reduce(with...); });
  });
}
int thalweg_reduce_async(const thalweg_communicator* communicator, void* tensor, int64_t elements,
                         int type, int op, int root, const thalweg_call_options* options,
                         thalweg_operation** started) {
  return started_by(started, [&] {
    return with_reduce(communicator, tensor, elements, type, op, root, options,
                       [&](const Communicator& all, const auto&... with) {
                         return give(all.reduce_async(with...), started);
                       });
  });
}

int thalweg_broadcast(const thalweg_communicator* communicator, void* tensor, int64_t elements,
                      int type, int root, const thalweg_call_options* options) {
  return guarded([&] {
    return with_broadcast(
        communicator, tensor, elements, type, root, options,
        [](const Communicator& all, const auto&... with) { return all.broadcast(with...); });
  });
}
int thalweg_broadcast_async(const thalweg_communicator* communicator, void* tensor,
                            int64_t elements, int type, int root,
                            const thalweg_call_options* options, thalweg_operation** started) {
  return started_by(started, [&] {
    return with_broadcast(communicator, tensor, elements, type, root, options,
                          [&](const Communicator& all, const auto&... with) {
                            return give(all.broadcast_async(with...), started);
                          });
  });
}

int thalweg_all_gather(const thalweg_communicator* communicator, const void* in, void* out,
                       int64_t elements, int type, const thalweg_call_options* options) {
  return guarded([&] {
    return with_all_gather(
        communicator, in, out, elements, type, options,
        [](const Communicator& all, const auto&... with) { return all.all_gather(with...); });
  });
}
int thalweg_all_gather_async(const thalweg_communicator* communicator, const void* in, void* out,
                             int64_t elements, int type, const thalweg_call_options* options,
                             thalweg_operation** started) {
  return started_by(started, [&] {
    return with_all_gather(communicator, in, out, elements, type, options,
                           [&](const Communicator& all, const auto&... with) {
                             return give(all.all_gather_async(with...), started);
                           });
  });
}

int thalweg_reduce_scatter(const thalweg_communicator* communicator, const void* in, void* out,
                           int64_t elements, int type, int op,
                           const thalweg_call_options* options) {
  return guarded([&] {
    return with_reduce_scatter(
        communicator, in, out, elements, type, op, options,
        [](const Communicator& all, const auto&... with) { return all.reduce_scatter(with...); });
  });
}
int thalweg_reduce_scatter_async(const thalweg_communicator* communicator, const void* in,
                                 void* out, int64_t elements, int type, int op,
                                 const thalweg_call_options* options, thalweg_operation** started) {
  return started_by(started, [&] {
    return with_reduce_scatter(communicator, in, out, elements, type, op, options,
                               [&](const Communicator& all, const auto&... with) {
                                 return give(all.reduce_scatter_async(with...), started);
                               });
  });
}

int thalweg_all_to_all(const thalweg_communicator* communicator, const void* in, void* out,
                       int64_t elements, int type, const thalweg_call_options* options) {
  return guarded([&] {
    return with_all_to_all(
        communicator, in, out, elements, type, options,
        [](const Communicator& all, const auto&... with) { return all.all_to_all(with...); });
  });
}
int thalweg_all_to_all_async(const thalweg_communicator* communicator, const void* in, void* out,
                             int64_t elements, int type, const thalweg_call_options* options,
                             thalweg_operation** started) {
  return started_by(started, [&] {
    return with_all_to_all(communicator, in, out, elements, type, options,
                           [&](const Communicator& all, const auto&... with) {
                             return give(all.all_to_all_async(with...), started);
                           });
  });
}

int thalweg_gather(const thalweg_communicator* communicator, const void* in, void* out,
                   int64_t elements, int type, int root, const thalweg_call_options* options) {
  return guarded([&] {
    return with_gather(
        communicator, in, out, elements, type, root, options,
        [](const Communicator& all, const auto&... with) { return all.gather(with...); });
  });
}
int thalweg_gather_async(const thalweg_communicator* communicator, const void* in, void* out,
                         int64_t elements, int type, int root, const thalweg_call_options* options,
                         thalweg_operation** started) {
  return started_by(started, [&] {
    return with_gather(communicator, in, out, elements, type, root, options,
                       [&](const Communicator& all, const auto&... with) {
                         return give(all.gather_async(with...), started);
                       });
  });
}

int thalweg_scatter(const thalweg_communicator* communicator, const void* in, void* out,
                    int64_t elements, int type, int root, const thalweg_call_options* options) {
  return guarded([&] {
    return with_scatter(
        communicator, in, out, elements, type, root, options,
        [](const Communicator& all, const auto&... with) { return all.scatter(with...); });
  });
}
int thalweg_scatter_async(const thalweg_communicator* communicator, const void* in, void* out,
                          int64_t elements, int type, int root, const thalweg_call_options* options,
                          thalweg_operation** started) {
  return started_by(started, [&] {
    return with_scatter(communicator, in, out, elements, type, root, options,
                        [&](const Communicator& all, const auto&... with) {
                          return give(all.scatter_async(with...), started);
                        });
  });
}

int thalweg_barrier(const thalweg_communicator* communicator, const thalweg_call_options* options) {
  return guarded([&] {
    return with_barrier(communicator, options, [](const Communicator& all, const auto&... with) {
      return all.barrier(with...);
    });
  });
}
int thalweg_barrier_async(const thalweg_communicator* communicator,
                          const thalweg_call_options* options, thalweg_operation** started) {
  return started_by(started, [&] {
    return with_barrier(communicator, options, [&](const Communicator& all, const auto&... with) {
      return give(all.barrier_async(with...), started);
    });
  });
}

int thalweg_send(const thalweg_communicator* communicator, const void* tensor, int64_t elements,
                 int type, int target, int tag, const thalweg_call_options* options) {
  return guarded([&] {
    return with_send(
        communicator, tensor, elements, type, target, tag, options,
        [](const Communicator& all, const auto&... with) { return all.send(with...); });
  });
}
int thalweg_send_async(const thalweg_communicator* communicator, const void* tensor,
                       int64_t elements, int type, int target, int tag,
                       const thalweg_call_options* options, thalweg_operation** started) {
  return started_by(started, [&] {
    return with_send(communicator, tensor, elements, type, target, tag, options,
                     [&](const Communicator& all, const auto&... with) {
                       return give(all.send_async(with...), started);
                     });
  });
}

int thalweg_recv(const thalweg_communicator* communicator, void* tensor, int64_t elements, int type,
                 int source, int tag, int* sender, const thalweg_call_options* options) {
  return guarded([&] {
    return with_recv(communicator, tensor, elements, type, source, tag, options,
                     [&](const Communicator& all, const auto&... with) -> Status {
                       THALWEG_TRY(const int rank, all.recv(with...));
                       if (sender != nullptr) *sender = rank;
                       return ok_status();
                     });
  });
}
int thalweg_recv_async(const thalweg_communicator* communicator, void* tensor, int64_t elements,
                       int type, int source, int tag, const thalweg_call_options* options,
                       thalweg_operation** started) {
  return started_by(started, [&] {
    return with_recv(communicator, tensor, elements, type, source, tag, options,
                     [&](const Communicator& all, const auto&... with) {
                       return give(all.recv_async(with...), started);
                     });
  });
}

int thalweg_wait(const thalweg_operation* operation) {
  return guarded([&]() -> Status {
    THALWEG_TRY(const Operation* const known, operation_of(operation));
    return known->wait();
  });
}

int thalweg_test(const thalweg_operation* operation, int* done) {
  return guarded([&]() -> Status {
    THALWEG_TRY(const Operation* const known, operation_of(operation));
    THALWEG_TRY_STATUS(needed("done", done != nullptr));
    *done = known->done() ? 1 : 0;
    return ok_status();
  });
}

int thalweg_sender(const thalweg_operation* operation, int* sender) {
  return guarded([&]() -> Status {
    THALWEG_TRY(const Operation* const known, operation_of(operation));
    THALWEG_TRY_STATUS(needed("sender", sender != nullptr));
    *sender = known->source();
    return ok_status();
  });
}

void thalweg_free(thalweg_operation* operation) { delete operation; }
