// A plan as the thread blocks of MSCCL, before it is written as XML. See msccl.h for the mapping.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace thalweg::plan {

enum class MscclBuffer : std::uint8_t { kInput, kOutput, kScratch };

struct MscclPlace {
  MscclBuffer buffer = MscclBuffer::kInput;
  std::int64_t offset = 0;  // in MSCCL's chunks
};

enum class MscclStepType : std::uint8_t { kSend, kReceive, kReceiveReduce, kLocalCopy };

// A step of some thread block of the same GPU.
struct MscclStepId {
  std::size_t block = 0;  // index in MscclProgram::blocks
  std::size_t index = 0;  // index in MscclBlock::steps
};

struct MscclStep {
  MscclStepType type = MscclStepType::kSend;
  MscclPlace source;
  MscclPlace target;
  std::int64_t count = 1;
  std::vector<MscclStepId> waits_for;  // in other thread blocks
  bool awaited = false;                // some other step waits for it
  // Its number in the XML, which also counts the nops before it: one for each wait but the last.
  int number = 0;
};

struct MscclBlock {
  int rank = 0;
  int send_peer = -1;
  int receive_peer = -1;
  int id = 0;  // its number among the rank's blocks
  std::vector<MscclStep> steps;
};

struct MscclProgram {
  std::int64_t input_chunks = 0;  // per rank, the same for all
  std::int64_t output_chunks = 0;
  std::vector<std::int64_t> scratch_chunks;  // per rank
  std::int64_t chunks_per_loop = 0;
  std::vector<MscclBlock> blocks;  // by rank, then id
};

Result<MscclProgram> msccl_program(const Plan& plan);

}  // namespace thalweg::plan
