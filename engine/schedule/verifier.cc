#include "engine/schedule/verifier.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/schedule/happens_before.h"

namespace millrace {
namespace {

std::string Describe(const Schedule& schedule, int instruction) {
  const Instruction& i = schedule.instructions[instruction];
  return absl::StrCat("instruction ", instruction, " (", NameOf(i.opcode), " unit ", i.unit,
                      " micro-batch ", i.micro_batch, ")");
}

std::string Describe(const Buffer& buffer) {
  return absl::StrCat(NameOf(buffer.kind), "[", buffer.index, "]");
}

// What is there before the first instruction.
bool IsInput(BufferKind kind) {
  switch (kind) {
    case BufferKind::kHostWeights:
    case BufferKind::kHostGradient:
    case BufferKind::kLoss:
    case BufferKind::kNorm:
    case BufferKind::kRotaryTable:
      return true;
    default:
      return false;
  }
}

// End of the arena that a buffer lies in.
size_t ArenaBytes(const Schedule& schedule, BufferKind kind) {
  switch (SpaceOf(kind)) {
    case MemorySpace::kDevice:
      return schedule.device_bytes;
    case MemorySpace::kHost:
      return schedule.host_bytes;
    case MemorySpace::kNone:
      return 0;
  }
  return 0;
}

absl::Status CheckMemory(const Schedule& schedule, size_t budget) {
  if (schedule.device_bytes > budget) {
    return absl::ResourceExhaustedError(absl::StrCat("the schedule needs ", schedule.device_bytes,
                                                     " bytes of device memory; the budget is ",
                                                     budget));
  }
  for (const Buffer& buffer : schedule.buffers) {
    const size_t arena = ArenaBytes(schedule, buffer.kind);
    if (buffer.bytes > arena || buffer.offset > arena - buffer.bytes) {
      return absl::InternalError(absl::StrCat(Describe(buffer), " ends beyond the arena"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOperands(const Schedule& schedule, int index) {
  const Instruction& instruction = schedule.instructions[index];
  for (int wait : instruction.waits) {
    if (wait < 0 || wait >= index) {
      return absl::InternalError(
          absl::StrCat(Describe(schedule, index), " waits for ", wait, ", which is not earlier"));
    }
  }
  for (int operand :
       {instruction.weights, instruction.tied_weights, instruction.input, instruction.output,
        instruction.saved, instruction.remade, instruction.scratch, instruction.positions,
        instruction.gradient, instruction.tied_gradient}) {
    const bool declared =
        std::any_of(instruction.accesses.begin(), instruction.accesses.end(),
                    [&](const Access& access) { return access.buffer == operand; });
    if (operand != kNone && !declared) {
      return absl::InternalError(absl::StrCat(Describe(schedule, index), " has the operand ",
                                              operand, ", which it does not say it touches"));
    }
  }
  for (const Access& access : instruction.accesses) {
    if (access.buffer < 0 || access.buffer >= static_cast<int>(schedule.buffers.size())) {
      return absl::InternalError(
          absl::StrCat(Describe(schedule, index), " has no buffer ", access.buffer));
    }
    const Buffer& buffer = schedule.buffers[access.buffer];
    if (access.bytes > buffer.bytes || access.offset > buffer.bytes - access.bytes) {
      return absl::InternalError(absl::StrCat(Describe(schedule, index), " touches ", access.bytes,
                                              " bytes at ", access.offset, " of ", Describe(buffer),
                                              ", which has ", buffer.bytes));
    }
  }
  return absl::OkStatus();
}

// Buffers that share an address with each, itself included.
std::vector<std::vector<int>> Overlaps(const std::vector<Buffer>& buffers) {
  std::vector<int> by_offset;
  std::vector<std::vector<int>> overlaps(buffers.size());
  for (int b = 0; b < static_cast<int>(buffers.size()); ++b) {
    overlaps[b].push_back(b);
    if (buffers[b].bytes > 0) by_offset.push_back(b);
  }
  // Space by space, for addresses of two spaces never meet.
  std::sort(by_offset.begin(), by_offset.end(), [&](int a, int b) {
    const MemorySpace of_a = SpaceOf(buffers[a].kind), of_b = SpaceOf(buffers[b].kind);
    return of_a != of_b ? of_a < of_b : buffers[a].offset < buffers[b].offset;
  });
  for (size_t i = 0; i < by_offset.size(); ++i) {
    const Buffer& low = buffers[by_offset[i]];
    for (size_t j = i + 1; j < by_offset.size(); ++j) {
      const Buffer& high = buffers[by_offset[j]];
      if (SpaceOf(high.kind) != SpaceOf(low.kind) || high.offset >= low.offset + low.bytes) break;
      overlaps[by_offset[i]].push_back(by_offset[j]);
      overlaps[by_offset[j]].push_back(by_offset[i]);
    }
  }
  return overlaps;
}

bool Contains(const std::vector<int>& values, int value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

}  // namespace

absl::Status Verify(const Schedule& schedule, size_t device_budget_bytes) {
  MILLRACE_RETURN_IF_ERROR(CheckMemory(schedule, device_budget_bytes));
  const std::vector<std::vector<int>> overlaps = Overlaps(schedule.buffers);

  // Of each buffer: its last write, the reads since, and whether another buffer at the same
  // addresses has been written since.
  struct State {
    int writer = kNone;
    std::vector<int> readers;
    bool overwritten = false;
  };
  std::vector<State> states(schedule.buffers.size());
  HappensBefore order;

  for (int index = 0; index < static_cast<int>(schedule.instructions.size()); ++index) {
    MILLRACE_RETURN_IF_ERROR(CheckOperands(schedule, index));
    const Instruction& instruction = schedule.instructions[index];
    order.Add(instruction);
    const auto unordered = [&](int earlier) {
      return earlier != kNone && earlier != index && !order.Ordered(schedule, earlier, index);
    };
    for (const Access& access : instruction.accesses) {
      if (access.write) continue;
      const Buffer& buffer = schedule.buffers[access.buffer];
      const State& state = states[access.buffer];
      if (state.overwritten || (state.writer == kNone && !IsInput(buffer.kind))) {
        return absl::InternalError(absl::StrCat(Describe(schedule, index), " reads ",
                                                Describe(buffer), ", which is not written"));
      }
      if (unordered(state.writer)) {
        return absl::InternalError(absl::StrCat(Describe(schedule, index), " reads ",
                                                Describe(buffer), " without waiting for ",
                                                Describe(schedule, state.writer)));
      }
    }
    for (const Access& access : instruction.accesses) {
      if (!access.write) continue;
      for (const Access& beside : instruction.accesses) {
        if (beside.buffer != access.buffer && Contains(overlaps[access.buffer], beside.buffer)) {
          return absl::InternalError(absl::StrCat(
              Describe(schedule, index), " writes ", Describe(schedule.buffers[access.buffer]),
              ", which lies where ", Describe(schedule.buffers[beside.buffer]), " does"));
        }
      }
      for (int other : overlaps[access.buffer]) {
        State& state = states[other];
        int rival = unordered(state.writer) ? state.writer : kNone;
        for (int reader : state.readers) {
          if (unordered(reader)) rival = reader;
        }
        if (rival != kNone) {
          return absl::InternalError(absl::StrCat(
              Describe(schedule, index), " writes ", Describe(schedule.buffers[access.buffer]),
              " without waiting for ", Describe(schedule, rival), ", which uses ",
              Describe(schedule.buffers[other])));
        }
        if (other != access.buffer) state.overwritten = true;
      }
      states[access.buffer] = {.writer = index};
    }
    for (const Access& access : instruction.accesses) {
      if (!access.write && states[access.buffer].writer != index) {
        states[access.buffer].readers.push_back(index);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace millrace
