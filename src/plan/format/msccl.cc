#include "plan/format/msccl.h"

#include <fmt/core.h>

#include <limits>

#include "plan/format/msccl_program.h"
#include "plan/format/xml_escape.h"

namespace thalweg::plan {
namespace {

// MSCCL's name of a collective; null if MSCCL has no such collective.
const char* msccl_name(Collective collective) {
  switch (collective) {
    case Collective::kAllreduce:
      return "allreduce";
    case Collective::kReduce:
      return "reduce";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kReduceScatter:
      return "reducescatter";
    case Collective::kAllGather:
      return "allgather";
    case Collective::kAllToAll:
      return "alltoall";
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kMix:
      return nullptr;
  }
  return nullptr;
}

const char* msccl_name(MscclStepType type) {
  switch (type) {
    case MscclStepType::kSend:
      return "s";
    case MscclStepType::kReceive:
      return "r";
    case MscclStepType::kReceiveReduce:
      return "rrc";
    case MscclStepType::kLocalCopy:
      return "cpy";
  }
  return "";
}

char msccl_name(MscclBuffer buffer) {
  switch (buffer) {
    case MscclBuffer::kInput:
      return 'i';
    case MscclBuffer::kOutput:
      return 'o';
    case MscclBuffer::kScratch:
      return 's';
  }
  return '?';
}

class XmlWriter {
 public:
  XmlWriter(const Plan& plan, const MscclProgram& program) : plan_(plan), program_(program) {}

  std::string write() {
    const bool in_place = plan_.collective != Collective::kAllToAll;
    append(
        "<algo name=\"{}\" proto=\"Simple\" nchannels=\"1\" nchunksperloop=\"{}\" ngpus=\"{}\" "
        "coll=\"{}\" inplace=\"{}\" outofplace=\"1\" minBytes=\"0\" maxBytes=\"{}\"",
        xml_escaped(plan_.scheme), program_.chunks_per_loop, plan_.ranks,
        msccl_name(plan_.collective), in_place ? 1 : 0, std::numeric_limits<std::int64_t>::max());
    if (plan_.root.valid()) append(" root=\"{}\"", plan_.root.value());
    out_ += ">\n";
    std::size_t next = 0;
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      append("  <gpu id=\"{}\" i_chunks=\"{}\" o_chunks=\"{}\" s_chunks=\"{}\">\n", rank,
             program_.input_chunks, program_.output_chunks,
             program_.scratch_chunks[static_cast<std::size_t>(rank)]);
      for (; next < program_.blocks.size() && program_.blocks[next].rank == rank; ++next) {
        write_block(program_.blocks[next]);
      }
      out_ += "  </gpu>\n";
    }
    out_ += "</algo>\n";
    return std::move(out_);
  }

 private:
  template <class... Args>
  void append(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  void write_block(const MscclBlock& block) {
    append("    <tb id=\"{}\" send=\"{}\" recv=\"{}\" chan=\"0\">\n", block.id, block.send_peer,
           block.receive_peer);
    for (const MscclStep& step : block.steps) {
      const int nops = static_cast<int>(step.waits_for.size()) - 1;
      for (int n = 0; n < nops; ++n) {
        append(
            "      <step s=\"{}\" type=\"nop\" srcbuf=\"i\" srcoff=\"-1\" dstbuf=\"o\" "
            "dstoff=\"-1\" cnt=\"0\"",
            step.number - nops + n);
        write_wait(&step.waits_for[static_cast<std::size_t>(n)]);
        out_ += " hasdep=\"0\"/>\n";
      }
      append(
          "      <step s=\"{}\" type=\"{}\" srcbuf=\"{}\" srcoff=\"{}\" dstbuf=\"{}\" "
          "dstoff=\"{}\" cnt=\"{}\"",
          step.number, msccl_name(step.type), msccl_name(step.source.buffer), step.source.offset,
          msccl_name(step.target.buffer), step.target.offset, step.count);
      write_wait(step.waits_for.empty() ? nullptr : &step.waits_for.back());
      append(" hasdep=\"{}\"/>\n", step.awaited ? 1 : 0);
    }
    out_ += "    </tb>\n";
  }

  void write_wait(const MscclStepId* wait) {
    if (wait == nullptr) {
      out_ += " depid=\"-1\" deps=\"-1\"";
      return;
    }
    const MscclBlock& block = program_.blocks[wait->block];
    append(" depid=\"{}\" deps=\"{}\"", block.id, block.steps[wait->index].number);
  }

  const Plan& plan_;
  const MscclProgram& program_;
  std::string out_;
};

}  // namespace

Result<std::string> plan_to_msccl_xml(const Plan& plan) {
  if (msccl_name(plan.collective) == nullptr) {
    return Error(fmt::format(
        "MSCCL has no {}: allreduce, reduce, broadcast, reduce-scatter, all-gather, all-to-all",
        name_of(plan.collective)));
  }
  THALWEG_TRY(const MscclProgram program, msccl_program(plan));
  return XmlWriter(plan, program).write();
}

}  // namespace thalweg::plan
