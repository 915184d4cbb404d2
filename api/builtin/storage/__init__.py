"""StorageClasses, VolumeAttributesClasses, CSI drivers, nodes and capacities, and VolumeAttachments."""
