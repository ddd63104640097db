#include "plan/format/msccl.h"

#include <gtest/gtest.h>

#include <map>
#include <pugixml.hpp>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/messages.h"
#include "plan/builder.h"
#include "plan/scheme.h"
#include "topology/format/load.h"

namespace thalweg::plan {
namespace {

Plan header(int ranks, std::int64_t elements) {
  Plan plan;
  plan.scheme = "by hand";
  plan.ranks = ranks;
  plan.contributors = ranks;
  plan.elements = elements;
  return plan;
}

Chunk part(std::int64_t offset, std::int64_t length, Rank target = {}) {
  return {.offset = offset, .length = length, .source = {}, .target = target};
}

PlanTransfer reduce(int from, int to, int chunk, int after) {
  return {.source = Rank(from),
          .target = Rank(to),
          .chunk = ChunkIndex(chunk),
          .after = after,
          .kind = TransferKind::kReduce};
}

pugi::xml_document parsed_xml(const Plan& plan) {
  pugi::xml_document document;
  const auto xml = plan_to_msccl_xml(plan);
  EXPECT_TRUE(xml) << xml.error().message();
  const bool read = xml && document.load_string(xml->c_str());
  EXPECT_TRUE(read);
  return document;
}

std::string error_of(const Plan& plan) { return message_of(plan_to_msccl_xml(plan)); }

// Two ranks swap and add: each receive waits until the rank's own send has read the buffer.
TEST(Msccl, swap__receive_waits_for_the_send_of_the_old_version) {
  Plan plan = header(2, 4);
  plan.chunks = {part(0, 4)};
  plan.transfers = {reduce(0, 1, 0, 0), reduce(1, 0, 0, 0)};
  const auto xml = plan_to_msccl_xml(plan);
  ASSERT_TRUE(xml) << xml.error().message();
  EXPECT_EQ(*xml,
            R"(<algo name="by hand" proto="Simple" nchannels="1" nchunksperloop="1" ngpus="2" )"
            R"(coll="allreduce" inplace="1" outofplace="1" minBytes="0" )"
            R"(maxBytes="9223372036854775807">
  <gpu id="0" i_chunks="1" o_chunks="1" s_chunks="0">
    <tb id="0" send="1" recv="-1" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="1"/>
    </tb>
    <tb id="1" send="-1" recv="1" chan="0">
      <step s="0" type="rrc" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="0" deps="0" hasdep="0"/>
    </tb>
  </gpu>
  <gpu id="1" i_chunks="1" o_chunks="1" s_chunks="0">
    <tb id="0" send="0" recv="-1" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="1"/>
    </tb>
    <tb id="1" send="-1" recv="0" chan="0">
      <step s="0" type="rrc" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="0" deps="0" hasdep="0"/>
    </tb>
  </gpu>
</algo>
)");
}

// Rank 1 swaps with 0 and 2 at once: its second arrival waits for the first; its first arrival
// waits for both of its sends, for one of them by a nop.
TEST(Msccl, several_waits__nops_before_the_step) {
  Plan plan = header(3, 3);
  plan.chunks = {part(0, 3)};
  plan.transfers = {reduce(1, 0, 0, 0), reduce(1, 2, 0, 0), reduce(0, 1, 0, 0), reduce(2, 1, 0, 0)};
  const pugi::xml_document document = parsed_xml(plan);
  const pugi::xml_node gpu = document.child("algo").find_child_by_attribute("gpu", "id", "1");
  const pugi::xml_node from_0 = gpu.find_child_by_attribute("tb", "recv", "0");
  const pugi::xml_node nop = from_0.first_child();
  EXPECT_STREQ(nop.attribute("type").value(), "nop");
  EXPECT_EQ(nop.attribute("depid").as_int(), 0);
  const pugi::xml_node arrival = nop.next_sibling();
  EXPECT_STREQ(arrival.attribute("type").value(), "rrc");
  EXPECT_EQ(arrival.attribute("s").as_int(), 1);
  EXPECT_EQ(arrival.attribute("depid").as_int(), 1);
  EXPECT_EQ(arrival.attribute("hasdep").as_int(), 1);
  const pugi::xml_node from_2 = gpu.find_child_by_attribute("tb", "recv", "2");
  EXPECT_EQ(from_2.first_child().attribute("depid").as_int(), from_0.attribute("id").as_int());
  EXPECT_EQ(from_2.first_child().attribute("deps").as_int(), 1);
}

// What the runtime's parser requires of any program, for every scheme.
TEST(Msccl, every_scheme__well_formed_and_every_send_has_its_receive) {
  const auto topology = topology::topology_from_shorthand("leaf-spine:racks=2,hosts=3,spines=1");
  ASSERT_TRUE(topology) << topology.error().message();
  int programs = 0;
  for (const Scheme* scheme : all_schemes()) {
    for (const Collective collective : scheme->collectives) {
      if (collective == Collective::kMix || collective == Collective::kGather ||
          collective == Collective::kScatter) {
        continue;
      }
      SCOPED_TRACE(testing::Message() << scheme->name << " " << name_of(collective));
      const auto plan = make_plan(
          scheme->name, {.collective = collective, .topology = *topology, .elements = 4800});
      ASSERT_TRUE(plan) << plan.error().message();
      const auto xml = plan_to_msccl_xml(*plan);
      ASSERT_TRUE(xml) << xml.error().message();
      ++programs;
      pugi::xml_document document;
      ASSERT_TRUE(document.load_string(xml->c_str()));
      std::map<std::tuple<int, int>, std::vector<std::string>> sent;
      std::map<std::tuple<int, int>, std::vector<std::string>> received;
      for (const pugi::xml_node gpu : document.child("algo")) {
        const int rank = gpu.attribute("id").as_int();
        int next_block = 0;
        for (const pugi::xml_node block : gpu) {
          ASSERT_EQ(block.attribute("id").as_int(), next_block++);
          int next_step = 0;
          for (const pugi::xml_node step : block) {
            ASSERT_EQ(step.attribute("s").as_int(), next_step++);
            const std::string type = step.attribute("type").value();
            const std::string target = std::string(step.attribute("dstbuf").value()) +
                                       step.attribute("dstoff").value() + " x" +
                                       step.attribute("cnt").value();
            if (type == "s") sent[{rank, block.attribute("send").as_int()}].push_back(target);
            if (type == "r" || type == "rrc") {
              received[{block.attribute("recv").as_int(), rank}].push_back(target);
            }
            const int other = step.attribute("depid").as_int();
            if (other < 0) {
              ASSERT_NE(type, "nop");
              continue;
            }
            const pugi::xml_node awaited =
                gpu.find_child_by_attribute("tb", "id", std::to_string(other).c_str())
                    .find_child_by_attribute("step", "s", step.attribute("deps").value());
            ASSERT_TRUE(awaited);
            ASSERT_EQ(awaited.attribute("hasdep").as_int(), 1);
          }
        }
      }
      EXPECT_EQ(sent, received);
      std::size_t sends = 0;
      for (const auto& [pair, targets] : sent) sends += targets.size();
      EXPECT_EQ(sends, plan->transfers.size());
    }
  }
  EXPECT_GE(programs, 15);
}

TEST(Msccl, lengths_that_are_multiples__steps_of_several_slots) {
  Plan plan = header(2, 12);
  plan.chunks = {part(0, 4), part(4, 8)};
  plan.transfers = {reduce(0, 1, 0, 0), reduce(1, 0, 0, 0), reduce(0, 1, 1, 0), reduce(1, 0, 1, 0)};
  const pugi::xml_document document = parsed_xml(plan);
  EXPECT_EQ(document.child("algo").attribute("nchunksperloop").as_int(), 3);
  const pugi::xml_node second =
      document.child("algo").first_child().first_child().first_child().next_sibling();
  EXPECT_EQ(second.attribute("srcoff").as_int(), 1);
  EXPECT_EQ(second.attribute("cnt").as_int(), 2);
}

TEST(Msccl, chunks_one_element_apart__count_as_equal) {
  Plan plan = header(2, 9);
  plan.chunks = {part(5, 4), part(0, 5)};
  plan.transfers = {reduce(0, 1, 0, 0), reduce(1, 0, 0, 0), reduce(0, 1, 1, 0), reduce(1, 0, 1, 0)};
  const pugi::xml_document document = parsed_xml(plan);
  EXPECT_EQ(document.child("algo").attribute("nchunksperloop").as_int(), 2);
  const pugi::xml_node first = document.child("algo").first_child().first_child().first_child();
  EXPECT_EQ(first.attribute("srcoff").as_int(), 1) << "the chunk that comes first lies second";
}

TEST(Msccl, scheme_name__escaped) {
  Plan plan = header(1, 1);
  plan.scheme = "a<b>&\"c\"";
  plan.chunks = {part(0, 1)};
  const pugi::xml_document document = parsed_xml(plan);
  EXPECT_EQ(document.child("algo").attribute("name").value(), plan.scheme);
}

TEST(Msccl, unequal_chunks__error) {
  Plan plan = header(2, 100);
  plan.chunks = {part(0, 1), part(1, 99)};
  EXPECT_NE(error_of(plan).find("these have 1 to 99 elements"), std::string::npos);
}

TEST(Msccl, shares_with_different_numbers_of_chunks__error) {
  Plan plan = header(2, 6);
  plan.collective = Collective::kReduceScatter;
  plan.chunks = {part(0, 2, Rank(0)), part(2, 1, Rank(0)), part(3, 1, Rank(1)), part(4, 1, Rank(1)),
                 part(5, 1, Rank(1))};
  EXPECT_NE(error_of(plan).find("the same number in every rank's share"), std::string::npos);
}

TEST(Msccl, empty_tensor__error) {
  EXPECT_NE(error_of(header(2, 0)).find("not empty"), std::string::npos);
}

TEST(Msccl, mix__error) {
  Plan plan = header(2, 4);
  plan.collective = Collective::kMix;
  EXPECT_NE(error_of(plan).find("MSCCL has no mix"), std::string::npos);
}

TEST(Msccl, ranks_that_only_help__error) {
  Plan plan = header(3, 4);
  plan.contributors = 2;
  plan.chunks = {part(0, 4)};
  EXPECT_NE(error_of(plan).find("of 3 ranks 2 contribute"), std::string::npos);
}

// Rank 1 sends chunk 1 on to 2 before it sends its own version of chunk 0 to the same peer. Its
// arrivals come over one connection, chunk 0 first, which waits for that send. The plan can be
// executed, but not with one thread block per connection.
TEST(Msccl, order_that_blocks_a_connection__error) {
  Plan plan = header(3, 4);
  plan.chunks = {part(0, 2), part(2, 2)};
  plan.transfers = {reduce(0, 1, 0, 0), reduce(0, 1, 1, 0), reduce(1, 2, 1, 1), reduce(1, 2, 0, 0)};
  EXPECT_NE(error_of(plan).find("waits forever"), std::string::npos) << error_of(plan);
}

}  // namespace
}  // namespace thalweg::plan
