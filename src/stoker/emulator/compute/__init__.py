"""Compute Engine v1: instances, templates, groups, disks and images, operations, and where machines are.

service       all of it behind one `handle`
routes        which call a request is
batch         several requests in one, as the gcloud CLI sends them
world         what the parts share
resources     names, links, ids, fingerprints; the shelf on which resources lie
filters       the language of `filter=`
listing       pages of lists, and lists over all places
operations    what was asked for, and how it went
agenda        what is to be done later
catalog       places, machine types, GPUs, public images
places        the calls that tell what is in the catalog; the project
quotas        what is used of what is allowed
capacity      whether there is room for a VM
shape         what an instance becomes from what was asked for
instances     the calls on instances
vm            the life of one VM
inside        what a VM reads about itself
templates     instance templates
groups        what a group has to do next: pure
keeper        does what groups have to do
managers      the calls on groups
disks         disks and snapshots
images        images and families
"""

from __future__ import annotations
