#!/bin/bash
# Draws the loss curve of a job from its events: one JSON object a line on standard input, as
# `millrace watch JOB -o json` prints them. Each column shows the mean loss of its steps.
set -euo pipefail
sed -n 's/.*"step":{\([^}]*\)}.*/\1/p' | awk -F, -v width=60 -v height=10 '
  {
    step = loss = ""
    for (i = 1; i <= NF; ++i) {
      split($i, pair, ":")
      gsub(/[" ]/, "", pair[1])
      gsub(/[" ]/, "", pair[2])
      if (pair[1] == "step") step = pair[2] + 0
      if (pair[1] == "loss") loss = pair[2]
    }
    # A job that was resumed tells some steps again; the last word counts.
    if (step != "" && loss ~ /^[0-9.eE+-]+$/) {
      if (!(step in losses)) order[++count] = step
      losses[step] = loss + 0
      if (step > last) last = step
    }
  }
  END {
    if (count == 0) {
      print "no steps yet"
      exit 1
    }
    if (count < width) width = count
    for (i = 1; i <= count; ++i) {
      column = int((i - 1) * width / count)
      sum[column] += losses[order[i]]
      number[column]++
    }
    for (column = 0; column < width; ++column) {
      mean[column] = sum[column] / number[column]
      if (column == 0 || mean[column] > high) high = mean[column]
      if (column == 0 || mean[column] < low) low = mean[column]
    }
    span = high > low ? high - low : 1
    for (row = height - 1; row >= 0; --row) {
      label = row == height - 1 ? sprintf("%.2f", high) : row == 0 ? sprintf("%.2f", low) : ""
      line = sprintf("%8s |", label)
      for (column = 0; column < width; ++column) {
        at = int((mean[column] - low) / span * (height - 1) + 0.5)
        line = line (at == row ? "*" : " ")
      }
      sub(/ +$/, "", line)
      print line
    }
    line = sprintf("%8s +", "loss")
    for (column = 0; column < width; ++column) line = line "-"
    print line
    format = "%10s%-6d%" (width > 16 ? width - 6 : 10) "s\n"
    printf format, "", order[1], "step " last
  }'
