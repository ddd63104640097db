// The environments that launchers set, as tables.
#include "net/job/environment.h"

#include <gtest/gtest.h>

#include <map>

#include "base/messages.h"
#include "net/job/slurm.h"
#include "net/net_pair.h"

namespace thalweg::net {
namespace {

using Variables = std::map<std::string, std::string>;

Result<Environment> read(const Variables& variables) {
  return environment_from([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

// Both together; the second wins.
Variables with(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

const Variables kTorchrun{{"RANK", "5"},          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},    {"LOCAL_WORLD_SIZE", "4"},
                          {"MASTER_ADDR", "ten"}, {"MASTER_PORT", "29500"}};
const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"PMIX_NAMESPACE", "1758855169"}};
const Variables kMpich{
    {"PMI_RANK", "0"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}};
const Variables kSlurm{{"SLURM_PROCID", "6"},
                       {"SLURM_NTASKS", "7"},
                       {"SLURM_LOCALID", "0"},
                       {"SLURM_NODEID", "2"},
                       {"SLURM_STEP_TASKS_PER_NODE", "3(x2),1"},
                       {"SLURM_STEP_NODELIST", "node[07-09]"},
                       {"SLURM_JOB_ID", "812"},
                       {"SLURM_STEP_ID", "0"}};
const Variables kOurs{{"THALWEG_RANK", "2"},
                      {"THALWEG_SIZE", "3"},
                      {"THALWEG_LOCAL_RANK", "0"},
                      {"THALWEG_LOCAL_SIZE", "1"},
                      {"THALWEG_STORE", "[::1]:7000"},
                      {"THALWEG_TOKEN", "00ff"},
                      {"THALWEG_STORE_BY", "launcher"},
                      {"THALWEG_INTERFACE", "eth0,eth1"},
                      {"THALWEG_KEY_FILE", "/k"}};

TEST(Environment, launchers__ranks_and_places) {
  struct Row {
    const Variables* variables;
    const char* launcher;
    int rank, size, local_rank, local_size;
  };
  for (const Row& row :
       {Row{&kTorchrun, "torchrun", 5, 8, 1, 4}, Row{&kOpenMpi, "mpirun", 1, 2, 1, 2},
        Row{&kSlurm, "srun", 6, 7, 0, 1}, Row{&kOurs, "thalweg", 2, 3, 0, 1}}) {
    const Result<Environment> e = read(*row.variables);
    ASSERT_TRUE(e.ok()) << row.launcher << ": " << e.error().message();
    EXPECT_EQ(e->launcher, row.launcher);
    EXPECT_EQ(e->rank, row.rank) << row.launcher;
    EXPECT_EQ(e->size, row.size) << row.launcher;
    EXPECT_EQ(e->local_rank, row.local_rank) << row.launcher;
    EXPECT_EQ(e->local_size, row.local_size) << row.launcher;
  }
}

TEST(Environment, none__alone_and_without_a_store) {
  const Environment e = read({}).value();
  EXPECT_EQ(e.rank, 0);
  EXPECT_EQ(e.size, 1);
  EXPECT_EQ(e.local_size, 1);
  EXPECT_EQ(e.store, "");
  EXPECT_EQ(e.launcher, "");
  EXPECT_EQ(read(with({}, {{"RANK", ""}, {"WORLD_SIZE", ""}}))->launcher, "") << "empty: not set";
}

TEST(Environment, ours__every_field) {
  const Environment e = read(kOurs).value();
  EXPECT_EQ(e.store, "[::1]:7000");
  EXPECT_FALSE(e.rank0_starts_store);
  EXPECT_EQ(e.token, 0xffU);
  EXPECT_EQ(e.key_file, "/k");
  EXPECT_EQ(e.interfaces, (std::vector<std::string>{"eth0", "eth1"}));
}

TEST(Environment, switches__on_unless_they_say_0) {
  for (const char* value : {"", "1"}) {
    const Environment e = read(with(kOurs, {{"THALWEG_SHARED_MEMORY", value}})).value();
    EXPECT_TRUE(e.shared_memory) << value;
  }
  EXPECT_FALSE(read(with(kOurs, {{"THALWEG_SHARED_MEMORY", "0"}}))->shared_memory);
  EXPECT_TRUE(read(kOurs)->encrypt);
  EXPECT_FALSE(read(with(kOurs, {{"THALWEG_ENCRYPT", "0"}}))->encrypt);
  EXPECT_TRUE(read(with(kOurs, {{"THALWEG_ENCRYPT", "1"}, {"THALWEG_KEY_FILE", "key"}}))->encrypt);
  const Variables keyless = with(kOurs, {{"THALWEG_ENCRYPT", "1"}, {"THALWEG_KEY_FILE", ""}});
  EXPECT_NE(message_of(read(keyless)).find("THALWEG_KEY_FILE"), std::string::npos);
  EXPECT_NE(message_of(read(with(kOurs, {{"THALWEG_ENCRYPT", "yes"}}))).find("0 or 1"),
            std::string::npos);
  EXPECT_TRUE(read(kOurs)->checksum);
  EXPECT_FALSE(read(with(kOurs, {{"THALWEG_CHECKSUM", "0"}}))->checksum);
  EXPECT_FALSE(read(with(kOurs, {{"THALWEG_CHECKSUM", "1"}}))->checksum_within_host);
  EXPECT_TRUE(read(with(kOurs, {{"THALWEG_CHECKSUM", "always"}}))->checksum_within_host);
  EXPECT_NE(message_of(read(with(kOurs, {{"THALWEG_CHECKSUM", "2"}}))).find("0, 1 or always"),
            std::string::npos);
  EXPECT_TRUE(read(kOurs)->trials);
  EXPECT_FALSE(read(with(kOurs, {{"THALWEG_AUTO", "0"}}))->trials);
}

TEST(Environment, ours__wins_over_every_launcher_as_a_whole_and_in_part) {
  for (const Variables& other : {kTorchrun, kOpenMpi, kMpich, kSlurm}) {
    const Result<Environment> all = read(with(other, kOurs));
    ASSERT_TRUE(all.ok()) << all.error().message();
    EXPECT_EQ(all->rank, 2);
    EXPECT_EQ(all->size, 3);
    EXPECT_EQ(all->store, "[::1]:7000");
  }
  const Environment part =
      read(with(kTorchrun, {{"THALWEG_STORE", "a:1"}, {"THALWEG_LOCAL_RANK", "3"}})).value();
  EXPECT_EQ(part.rank, 5);
  EXPECT_EQ(part.local_rank, 3);
  EXPECT_EQ(part.store, "a:1");
  EXPECT_TRUE(part.rank0_starts_store);
}

TEST(Environment, order__torchrun_within_slurm_and_mpirun_within_slurm) {
  EXPECT_EQ(read(with(kSlurm, kTorchrun))->launcher, "torchrun");
  EXPECT_EQ(read(with(kSlurm, kOpenMpi))->launcher, "mpirun");
}

TEST(Environment, store__where_the_ranks_meet) {
  EXPECT_EQ(read(kTorchrun)->store, "ten:29501") << "PyTorch has 29500";
  EXPECT_EQ(read(with(kTorchrun, {{"MASTER_PORT", "65535"}}))->store, "ten:65534");
  EXPECT_EQ(read(with(kTorchrun, {{"MASTER_ADDR", "fd00::2"}}))->store, "[fd00::2]:29501");
  EXPECT_EQ(read(with(kMpich, {{"MASTER_ADDR", "h"}, {"MASTER_PORT", "7"}}))->store, "h:8");
  const std::string slurm = read(kSlurm)->store;
  EXPECT_TRUE(slurm.starts_with("node07:2") || slurm.starts_with("node07:3")) << slurm;
  EXPECT_NE(read(with(kSlurm, {{"SLURM_STEP_ID", "1"}}))->store, slurm) << "another step";
  const std::string mpi = read(kOpenMpi)->store;
  EXPECT_TRUE(mpi.starts_with("127.0.0.1:")) << mpi;
  EXPECT_NE(read(with(kOpenMpi, {{"PMIX_NAMESPACE", "7"}}))->store, mpi) << "another job";
  EXPECT_EQ(read(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"}}))->store, mpi) << "all ranks";
}

TEST(Environment, token__the_same_within_a_job_only) {
  const wire::JobToken token = read(kTorchrun)->token;
  EXPECT_EQ(read(with(kTorchrun, {{"RANK", "0"}, {"LOCAL_RANK", "0"}}))->token, token);
  EXPECT_NE(read(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "x"}}))->token, token);
  EXPECT_NE(read(with(kTorchrun, {{"MASTER_PORT", "1"}}))->token, token);
  EXPECT_EQ(read(with(kTorchrun, {{"THALWEG_TOKEN", "FFFFffffFFFFffff"}}))->token,
            ~wire::JobToken{0});
}

TEST(Environment, token__rank_0_hands_one_out_where_all_ranks_are_on_its_host) {
  EXPECT_FALSE(read(kTorchrun)->token_desk.empty());
  EXPECT_EQ(read(with(kOurs, {{"THALWEG_TOKEN", "1"}}))->token_desk, "") << "it is given";
  EXPECT_EQ(read(with(kTorchrun, {{"RANK", "0"}}))->token_desk, read(kTorchrun)->token_desk);
  const auto other = read(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "x"}}));
  EXPECT_NE(other->token_desk, read(kTorchrun)->token_desk) << "another job at the same store";
  EXPECT_EQ(other->newcomers_desk, read(kTorchrun)->newcomers_desk) << "these know no job's name";
  EXPECT_FALSE(read(kTorchrun)->one_host) << "4 of 8 ranks";
  EXPECT_TRUE(read(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "8"}}))->one_host);
  EXPECT_TRUE(read(with(kTorchrun, {{"MASTER_ADDR", "::1"}}))->one_host);
  EXPECT_TRUE(read(with(kTorchrun, {{"MASTER_ADDR", "localhost"}}))->one_host);
  EXPECT_TRUE(read(kOpenMpi)->one_host);
  EXPECT_FALSE(read(kSlurm)->one_host);
  EXPECT_FALSE(read({{"THALWEG_STORE", "ten:7000"}})->one_host) << "alone, until others join";
}

TEST(Environment, batch_script__is_no_task_of_slurm) {
  Variables batch = kSlurm;
  batch.erase("SLURM_STEP_NODELIST");
  EXPECT_EQ(read(batch)->size, 1);
}

TEST(Environment, bad__variable_value_and_what_is_allowed) {
  struct Row {
    Variables variables;
    const char* message;
  };
  const std::vector<Row> rows{
      {with(kTorchrun, {{"RANK", "8"}}),
       "RANK: '8' is not allowed: a whole number from 0 to 7, as WORLD_SIZE is 8"},
      {with(kTorchrun, {{"RANK", "-1"}}),
       "RANK: '-1' is not allowed: a whole number from 0 to 7, as WORLD_SIZE is 8"},
      {with(kTorchrun, {{"WORLD_SIZE", "8x"}}),
       "WORLD_SIZE: '8x' is not allowed: a whole number from 1 to 1048576"},
      {with(kTorchrun, {{"WORLD_SIZE", "0"}}),
       "WORLD_SIZE: '0' is not allowed: a whole number from 1 to 1048576"},
      {with(kTorchrun, {{"LOCAL_RANK", "4"}}),
       "LOCAL_RANK: '4' is not allowed: a whole number from 0 to 3"},
      {with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}),
       "LOCAL_WORLD_SIZE: '9' is not allowed: a whole number from 1 to 8"},
      {with(kTorchrun, {{"MASTER_PORT", "70000"}}),
       "MASTER_PORT: '70000' is not allowed: a whole number from 1 to 65535"},
      {with(kTorchrun, {{"MASTER_PORT", ""}}), "MASTER_PORT is not set, but the other is"},
      {with(kTorchrun, {{"WORLD_SIZE", ""}}),
       "RANK is set, but WORLD_SIZE is not: a rank needs both"},
      {{{"THALWEG_SIZE", "2"}}, "THALWEG_SIZE is set, but THALWEG_RANK is not: a rank needs both"},
      {with(kOurs, {{"THALWEG_STORE", "host"}}),
       "THALWEG_STORE: 'host' is not allowed: host:port, with a port from 1 to 65535"},
      {with(kOurs, {{"THALWEG_STORE", "host:0"}}),
       "THALWEG_STORE: 'host:0' is not allowed: host:port, with a port from 1 to 65535"},
      {with(kOurs, {{"THALWEG_AUTO", "on"}}), "THALWEG_AUTO: 'on' is not allowed: 0 or 1"},
      {with(kOurs, {{"THALWEG_SHARED_MEMORY", "yes"}}),
       "THALWEG_SHARED_MEMORY: 'yes' is not allowed: 0 or 1"},
      {with(kOurs, {{"THALWEG_STORE_BY", "me"}}),
       "THALWEG_STORE_BY: 'me' is not allowed: rank0 or launcher"},
      {with(kOurs, {{"THALWEG_TOKEN", "12345678901234567"}}),
       "THALWEG_TOKEN: must be 1 to 16 hexadecimal digits"},
      {with(kOurs, {{"THALWEG_TOKEN", "secret"}}),
       "THALWEG_TOKEN: must be 1 to 16 hexadecimal digits"},
      {with(kOurs, {{"THALWEG_INTERFACE", "eth0,"}}),
       "THALWEG_INTERFACE: 'eth0,' is not allowed: names of interfaces or addresses of this host, "
       "as in eth0,eth1"},
      {with(kOurs, {{"THALWEG_INTERFACE", "eth0,eth1,eth0"}}),
       "THALWEG_INTERFACE: 'eth0,eth1,eth0' is not allowed: 'eth0' is there twice; each once is "
       "allowed"},
      {with(kOurs, {{"THALWEG_DLCP_PAYLOAD", "1153"}}),
       "THALWEG_DLCP_PAYLOAD: '1153' is not allowed: a multiple of 8"},
      {with(kOurs, {{"THALWEG_DLCP_PAYLOAD", "9000"}}),
       "THALWEG_DLCP_PAYLOAD: '9000' is not allowed: a whole number from 8 to 8960"},
      {with(kOurs, {{"THALWEG_DLCP_PATHS", "33"}}),
       "THALWEG_DLCP_PATHS: '33' is not allowed: a whole number from 1 to 32"},
      {with(kOurs, {{"THALWEG_STREAMS", "0"}}),
       "THALWEG_STREAMS: '0' is not allowed: a whole number from 1 to 16"},
      {with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "3(x2)"}}),
       "SLURM_STEP_TASKS_PER_NODE: '3(x2)' is not allowed: counts such as 4(x2),3 that reach node "
       "2"},
      {with(kSlurm, {{"SLURM_STEP_NODELIST", "node["}}),
       "SLURM_STEP_NODELIST: 'node[' is not allowed: a list of hosts such as node[01-04,07]"},
  };
  for (const Row& row : rows) EXPECT_EQ(message_of(read(row.variables)), row.message);
}

TEST(Environment, no_store__is_asked_for_by_name) {
  for (const Variables& variables : {kMpich, with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "4"}}),
                                     Variables{{"THALWEG_RANK", "0"}, {"THALWEG_SIZE", "2"}}}) {
    const std::string message = message_of(read(variables));
    EXPECT_TRUE(says(message, "THALWEG_STORE=host:port"));
    EXPECT_TRUE(says(message, "MASTER_ADDR and MASTER_PORT"));
  }
}

TEST(Environment, store_listen_address__loopback_stays_there) {
  EXPECT_EQ(store_listen_address("127.0.0.1:5").value(), "127.0.0.1:5");
  EXPECT_EQ(store_listen_address("[::1]:5").value(), "[::1]:5");
  EXPECT_EQ(store_listen_address("10.1.2.3:5").value(), "*:5");
}

TEST(Slurm, first_host__of_lists) {
  EXPECT_EQ(slurm_first_host("a"), "a");
  EXPECT_EQ(slurm_first_host("a,b[1-2]"), "a");
  EXPECT_EQ(slurm_first_host("n[007-009,12],other"), "n007");
  EXPECT_EQ(slurm_first_host("n[3]"), "n3");
  EXPECT_EQ(slurm_first_host("rack[1-2]n[01-16].local"), "rack1n01.local");
  for (const char* bad : {"", "n[", "n[]", "n[x-y]"}) EXPECT_EQ(slurm_first_host(bad), "") << bad;
}

TEST(Slurm, tasks_of_node__of_lists) {
  EXPECT_EQ(slurm_tasks_of_node("4", 0), 4);
  EXPECT_EQ(slurm_tasks_of_node("4(x2),3", 1), 4);
  EXPECT_EQ(slurm_tasks_of_node("4(x2),3", 2), 3);
  for (const char* bad : {"", "4", "x", "4(x", "4(x1),", "4(x1);2", "1,0", "1,-2"}) {
    EXPECT_EQ(slurm_tasks_of_node(bad, 1), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace thalweg::net
