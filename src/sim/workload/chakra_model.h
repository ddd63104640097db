// Chakra execution traces (trace/chakra.h) as models, and models as traces. docs/chakra.md has the
// rules for both ways.
//
// A trace of one rank becomes a table in which every allreduce is a layer: a bucket of gradients,
// as it was sent. chakra_steps.h runs the nodes and finds the steps.
//
//   backward   of a bucket: the time from the moment at which the bucket before it is ready. The
//              buckets are in the order in which they become ready, and the last one is the front
//              of the model
//   forward    of a bucket: the computing of the next step that waits for this bucket and for no
//              earlier one. Computing that no allreduce waits for is forward time of the front
//
// If there are several steps, those count that communicate alike and are more than half of all;
// each time is the median of theirs. What a step computes before its first bucket is ready is
// backward time of that bucket then, since a trace does not say where the forward pass ends.
#pragma once

#include <cstdint>
#include <string_view>

#include <thalweg/result.h>

#include "sim/workload/model.h"
#include "trace/chakra.h"

namespace thalweg::sim {

// Reads the trace of one rank's training steps. Errors name `source`, the node and the field. The
// steps must have ALL_REDUCE nodes of one group, and no other communication but barriers.
[[nodiscard]] Result<ModelTable> model_from_chakra(std::string_view content,
                                                   std::string_view source);

// What the forward pass of a layer waits for.
enum class ChakraWait : std::uint8_t { kOwnLayer, kAllLayers };

// One step of a model as a trace, from the start of its backward pass to the end of the next
// forward pass. Each layer is sent by one allreduce. Reading it again gives the same times and
// sizes; with kAllLayers, the forward times of all layers together.
[[nodiscard]] trace::ChakraTrace chakra_of(const ModelTable& model, ChakraWait wait);

}  // namespace thalweg::sim
