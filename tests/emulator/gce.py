"""The official clients of Compute Engine, turned to an emulator, and what tests ask them for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from google.auth.credentials import AnonymousCredentials
from google.cloud import compute_v1
from google.oauth2.credentials import Credentials

from stoker.emulator.cloud import PROJECT

REGION, ZONE = "us-central1", "us-central1-a"
DEBIAN = "projects/debian-cloud/global/images/family/debian-12"
EVERYTHING = "https://www.googleapis.com/auth/cloud-platform"
INSIDE = "${GCE_METADATA_HOST:-metadata.google.internal}/computeMetadata/v1"
"""Where a script in a VM finds the metadata server, in any mode."""
DONE = compute_v1.Operation.Status.DONE


class Gce:
    """All clients. With a token, as whoever it was given to."""

    def __init__(self, url: str, token: str = "") -> None:
        kind: Any = Credentials if token else AnonymousCredentials
        credentials = kind(token) if token else kind()
        options: dict[str, Any] = {"credentials": credentials, "client_options": {"api_endpoint": url}}
        self.instances = compute_v1.InstancesClient(**options)
        self.templates = compute_v1.InstanceTemplatesClient(**options)
        self.groups = compute_v1.RegionInstanceGroupManagersClient(**options)
        self.zonal_groups = compute_v1.InstanceGroupManagersClient(**options)
        self.zone_operations = compute_v1.ZoneOperationsClient(**options)
        self.region_operations = compute_v1.RegionOperationsClient(**options)
        self.global_operations = compute_v1.GlobalOperationsClient(**options)
        self.options = options

    def done(self, operation: Any) -> compute_v1.Operation:
        """The same operation when it is over."""
        if operation.zone:
            zone = operation.zone.rpartition("/")[2]
            return self.zone_operations.wait(project=PROJECT, zone=zone, operation=operation.name)
        if operation.region:
            region = operation.region.rpartition("/")[2]
            return self.region_operations.wait(project=PROJECT, region=region, operation=operation.name)
        return self.global_operations.wait(project=PROJECT, operation=operation.name)

    def make(self, resource: compute_v1.Instance, zone: str = ZONE) -> compute_v1.Operation:
        """Insert an instance, and wait."""
        return self.done(self.instances.insert_unary(project=PROJECT, zone=zone, instance_resource=resource))

    def get(self, name: str, zone: str = ZONE) -> compute_v1.Instance:
        """An instance as it is now."""
        return self.instances.get(project=PROJECT, zone=zone, instance=name)

    def there(self) -> dict[str, compute_v1.Instance]:
        """All instances, wherever they are."""
        scopes = self.instances.aggregated_list(project=PROJECT)
        return {vm.name: vm for _, scope in scopes for vm in scope.instances}

    def console(self, name: str, zone: str = ZONE) -> str:
        """All that it said."""
        return self.instances.get_serial_port_output(project=PROJECT, zone=zone, instance=name).contents

    def operations_of(self, kind: str, zone: str = ZONE) -> list[compute_v1.Operation]:
        """Those of one kind."""
        request = compute_v1.ListZoneOperationsRequest(
            project=PROJECT, zone=zone, filter=f'operationType="{kind}"'
        )
        return list(self.zone_operations.list(request=request))


def disk(image: str = DEBIAN) -> compute_v1.AttachedDisk:
    params = compute_v1.AttachedDiskInitializeParams(source_image=image)
    return compute_v1.AttachedDisk(boot=True, auto_delete=True, initialize_params=params)


def network() -> compute_v1.NetworkInterface:
    return compute_v1.NetworkInterface(network="global/networks/default")


def metadata(script: str = "", **items: str) -> compute_v1.Metadata:
    named = {key.replace("_", "-"): value for key, value in items.items()}
    if script:
        named["startup-script"] = f"#!/bin/bash\n{script}\n"
    return compute_v1.Metadata(items=[compute_v1.Items(key=key, value=value) for key, value in named.items()])


def vm(name: str, script: str = "", zone: str = ZONE, **fields: Any) -> compute_v1.Instance:
    """What is asked for: a small VM that runs a script."""
    asked = {
        "machine_type": f"zones/{zone}/machineTypes/e2-small",
        "disks": [disk()],
        "network_interfaces": [network()],
        "metadata": metadata(script),
    }
    return compute_v1.Instance(name=name, **(asked | fields))


def spot(action: str = "STOP") -> compute_v1.Scheduling:
    return compute_v1.Scheduling(provisioning_model="SPOT", instance_termination_action=action)


def template(name: str, script: str = "", **fields: Any) -> compute_v1.InstanceTemplate:
    asked = {
        "machine_type": "e2-small",
        "disks": [disk()],
        "network_interfaces": [network()],
        "metadata": metadata(script),
        "scheduling": spot(),
    }
    return compute_v1.InstanceTemplate(
        name=name, properties=compute_v1.InstanceProperties(**(asked | fields))
    )


def follow(path: str) -> str:
    """A script that says what lies there in the metadata server, and again after each change."""
    return f"""
    head=$(mktemp) etag=0
    while :; do
        curl -sD "$head" -H Metadata-Flavor:Google "{INSIDE}/{path}wait_for_change=true&last_etag=$etag"; echo
        etag=$(sed -n 's/^etag: //Ip' "$head" | tr -d '[:space:]')
    done
    """


def until(is_so: Callable[[], Any], most: float = 30.0) -> Any:
    """What it gives when it is something. It may take long, so that a slow machine is no reason to fail."""
    end = time.monotonic() + most
    while True:
        found = is_so()
        if found:
            return found
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)
