"""A Google Cloud at home: an HTTP server on loopback for the official clients, with VMs that are processes.

    with Emulator() as cloud:
        client = InstancesClient(client_options={"api_endpoint": cloud.url}, credentials=ANONYMOUS)

    http        requests, replies, connections: nothing of Google here
    errors      how each API tells that something went wrong
    identity    who asks, and what they may
    policies    roles, as all APIs tell and take them
    faults      what goes wrong on request; fault_file: from a file
    pace        how long boots, operations and notices take
    compute/    Compute Engine: instances, groups, images, operations
    storage/    Cloud Storage: objects by the JSON and the XML interface
    secrets     Secret Manager
    projects    the project's policy, and service accounts
    metadata    the metadata server of each VM
    machines/   VMs: namespaces if we are root, plain processes if not
    meter       every second of every VM
    news        what happened to VMs, in words
    control     what no real cloud offers: faults and preemptions while it runs
    cloud       all of it together

Needs nothing but the standard library. docs/emulator.md tells how faithful each part is.
"""

from __future__ import annotations
