"""Mean and standard deviation per colour channel of ImageNet, as torchvision's models expect them."""

MEAN = (0.485, 0.456, 0.406)
"""Of values in [0, 1]; red, green, blue."""
STD = (0.229, 0.224, 0.225)
MEAN_255 = [255 * value for value in MEAN]
STD_255 = [255 * value for value in STD]
